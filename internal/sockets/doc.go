// Package sockets says, from /proc, which sockets have a port of the network namespace of the calling thread, and which processes have them. It opens and changes nothing: how
// full their buffers are is read where they are used.
package sockets
