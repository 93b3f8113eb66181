// Package tcp is weir tcp: how many TCP connections a path holds, and what limits them.
package tcp
