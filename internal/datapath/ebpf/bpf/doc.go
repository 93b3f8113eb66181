// Package bpf is the kernel's side of the data path: its programs in C, and what the generator makes of them for Go.
//
//	*.bpf.c, *.h ─► bpf/generate (clang) ─► *_bpfel.o   the objects, embedded
//	                                     └► *_bpfel.go  structs, enums and names of the maps, as the programs know them
//
// One core is compiled for two hooks: xdp.bpf.c and tcx.bpf.c hold only entry points and packet access. turn_*.bpf.c relay
// channels of TURN, udpnat.bpf.c forwards established flows of the user-space NAT, decap_*.bpf.c end tunnels of mode L3-DSR
// at a backend, bench.bpf.c generates packets for measurements. tunnel.h takes a tunnel off for decap.h and for inbound.h, which is a part of the core: tunnels
// that end at a balancer (decap in its configuration).
//
// Structs here have the byte order of the maps: addresses and ports in network order, the rest little-endian.
package bpf

//go:generate ./generate
