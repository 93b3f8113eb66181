// Package lb is weir lb: runs the layer-4 load balancer, and asks and changes a running one.
package lb
