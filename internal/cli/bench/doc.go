// Package bench is weir bench: what the parts of Weir carry and cost, measured beside their peers.
package bench
