// Package snat is weir snat: how many connections NAT gateways let through, planned, simulated and measured.
package snat
