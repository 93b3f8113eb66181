// Package publish brings the configuration of load balancers from the operator to them, and reports what they have applied and refused:
//
//	File       to a file that one `weir lb run -c` on this machine follows; its admin API says what it has applied
//	Discovery  to any number of `weir lb run --source`, through a server of package control/discovery
//
// Configurations of TURN gateways go by STUNner's protocol, in package kube/discovery. What is in a configuration is not known here.
package publish
