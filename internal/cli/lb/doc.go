// Package lb is weir lb: runs the layer-4 load balancer, and queries and changes a running one.
package lb
