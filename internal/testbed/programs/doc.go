// Package programs starts the programs of a run, ours and others', in namespaces of a lab: each ends with us, an interrupt
// at the terminal does not reach it, and its last output is at hand. A [Daemon] is the weir binary with its admin socket.
package programs
