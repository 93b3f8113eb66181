// Package tcp is weir tcp: how many TCP connections a path holds, and what stands in the way of more.
package tcp
