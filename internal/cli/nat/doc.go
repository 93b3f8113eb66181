// Package nat is weir nat: a UDP NAT and load balancer with a console, from the command line alone.
package nat
