// Package doctor is weir doctor: what makes the load balancer lose packets here, and the command that remedies it.
package doctor
