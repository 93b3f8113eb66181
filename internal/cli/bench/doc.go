// Package bench is weir bench: what the parts of Weir carry and cost, compared with their peers.
package bench
