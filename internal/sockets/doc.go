// Package sockets says, from /proc, which sockets have a port of the network namespace of the calling thread, and which processes have them.
package sockets
