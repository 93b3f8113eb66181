package udpio

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Offsets of classic programs that are relative to the network header (linux/filter.h: SKF_NET_OFF).
const netOffset = uint32(0xfff00000)

// peerFactor spreads neighbouring addresses and ports (Knuth's multiplicative hash).
const peerFactor = 2654435761

// PeerSocket returns which socket of a group of n receives the datagrams of a peer under Steering.ByPeer.
func PeerSocket(peer netip.AddrPort, n int) int {
	if n <= 1 {
		return 0
	}
	ip := peer.Addr().Unmap()
	var sum uint32
	if ip.Is4() {
		b := ip.As4()
		sum = binary.BigEndian.Uint32(b[:])
	} else {
		b := ip.As16()
		for i := 0; i < 16; i += 4 {
			sum ^= binary.BigEndian.Uint32(b[i:])
		}
	}
	sum ^= uint32(peer.Port())
	return int((sum * peerFactor >> 16) % uint32(n))
}

// steerByPeer attaches the classic program that PeerSocket describes.
func (g *Group) steerByPeer() error {
	raw, err := bpf.Assemble(peerProgram(len(g.conns)))
	if err != nil {
		return fmt.Errorf("assemble the classic program: %w", err)
	}
	return g.attachClassic(raw)
}

// peerProgram adds up the source address and port, of either family, and multiplies the sum. X holds the offset of
// the ports, or a summand.
func peerProgram(n int) []bpf.Instruction {
	finish := []bpf.Instruction{
		bpf.ALUOpConstant{Op: bpf.ALUOpMul, Val: peerFactor},
		bpf.ALUOpConstant{Op: bpf.ALUOpShiftRight, Val: 16},
		bpf.ALUOpConstant{Op: bpf.ALUOpMod, Val: uint32(n)},
		bpf.RetA{},
	}
	v4 := []bpf.Instruction{
		bpf.LoadMemShift{Off: netOffset},
		bpf.LoadIndirect{Off: netOffset, Size: 2},
		bpf.TAX{},
		bpf.LoadAbsolute{Off: netOffset + 12, Size: 4},
		bpf.ALUOpX{Op: bpf.ALUOpXor},
	}
	v6 := []bpf.Instruction{bpf.LoadAbsolute{Off: netOffset + 40, Size: 2}}
	for off := uint32(8); off < 24; off += 4 {
		v6 = append(v6, bpf.TAX{}, bpf.LoadAbsolute{Off: netOffset + off, Size: 4}, bpf.ALUOpX{Op: bpf.ALUOpXor})
	}
	program := []bpf.Instruction{
		bpf.LoadAbsolute{Off: netOffset, Size: 1},
		bpf.ALUOpConstant{Op: bpf.ALUOpShiftRight, Val: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 4, SkipFalse: uint8(len(v4) + len(finish))},
	}
	program = append(program, append(v4, finish...)...)
	return append(program, append(v6, finish...)...)
}

func (g *Group) attachClassic(raw []bpf.RawInstruction) error {
	filters := make([]unix.SockFilter, len(raw))
	for i, in := range raw {
		filters[i] = unix.SockFilter{Code: in.Op, Jt: in.Jt, Jf: in.Jf, K: in.K}
	}
	prog := unix.SockFprog{Len: uint16(len(filters)), Filter: &filters[0]}
	if err := unix.SetsockoptSockFprog(g.conns[0].fd, unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_CBPF, &prog); err != nil {
		return fmt.Errorf("attach the classic program: %w", err)
	}
	return nil
}
