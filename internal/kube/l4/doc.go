// Package l4 translates Gateways with UDP and TCP listeners into the configuration of Weir's load balancer.
package l4
