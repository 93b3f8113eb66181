// Package steertest runs the conformance corpus of package steer
// (internal/steering/steer/testdata) against any data path: the Go Engine, the
// eBPF programs through PROG_TEST_RUN, a fake NFQUEUE.
//
// A case is a text archive: what it shows, then files. Each file but "steps" is
// a spec in YAML; spec.yaml is applied first.
//
//	A flow keeps its backend when another one joins.
//	-- spec.yaml --
//	services: …
//	-- more.yaml --
//	services: …
//	-- steps --
//	in udp 10.0.0.1:5000 > 192.0.2.1:5684
//	want forward maglev pool/$x
//	apply more.yaml
//	again
//	want forward conntrack pool/$x
//	out same
//
// Steps, one per line, # starts a comment:
//
//	in PACKET        give a packet, as packet.ParseText reads it; frag= without
//	                 piece= gives them all, in order
//	raw HEX          give these bytes as an IP packet
//	frame HEX        give these bytes as an Ethernet frame
//	again            give the last packet (or packets) once more
//	repeat N         give the last packet N times more: each is to have the result that
//	                 was wanted last
//	want ACTION REASON [SERVICE/BACKEND]
//	                 the next packet's result. $x in place of a backend is bound
//	                 when first seen; !$x is any other backend
//	                 A member of the tier is named by its mark
//	out PACKET       its bytes as they leave: written as a packet, or "same" as
//	                 they came, or "hex …"
//	mark N           its fwmark
//	at 31s           set the clock, counted from the start
//	apply FILE       another spec
//	override SERVICE/BACKEND drain|down|up|none [health]
//	need WORD…       beyond a data path that has no such trait (Traits)
//
// TTLs in out are as given; where the data path is a router, the runner lowers
// the packet's (not a tunnel's) by one. Tunnel sources are Source4 and Source6.
package steertest
