// Package explain is weir explain: where the load balancer sends a packet or a capture, and why.
package explain
