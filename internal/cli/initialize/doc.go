// Package initialize is weir init: writes a first configuration file of the load balancer.
package initialize
