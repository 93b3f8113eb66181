package udpio

import (
	"errors"
	"fmt"

	"golang.org/x/net/bpf"
)

// SteerRule selects the byte of a datagram that chooses the socket: if first byte & FirstMask == FirstValue, the
// value is (byte[Offset] >> Shift) & Mask. The first matching rule counts. A datagram that matches no rule, that is
// too short, or whose value names no socket goes to the socket that the kernel's hash selects. The value comes from
// the sender and is only a hint: the reader must handle a datagram that another worker owns.
type SteerRule struct {
	FirstMask, FirstValue byte
	Offset                int
	Shift                 uint8
	Mask                  byte
}

// SteerDTLS12 is the rule for DTLS 1.2 records with a CID (RFC 9146 section 4: type 25, CID at offset 11): bits of
// byte i of the CID.
func SteerDTLS12(i int, shift uint8, mask byte) SteerRule {
	return SteerRule{FirstMask: 0xff, FirstValue: 25, Offset: 11 + i, Shift: shift, Mask: mask}
}

// Steering is how a classic BPF program, which needs no privilege, picks the socket of a datagram: by the first rule that fits, whose
// value is the index of the socket.
type Steering struct {
	Rules []SteerRule
	// ByPeer, instead of rules, steers all datagrams of a peer's address and port to the socket that PeerSocket
	// returns, so that another process can compute which one it was. The hash has no secret, so a peer that chooses
	// its ports can choose its socket. Extension headers of IPv6 count as ports.
	ByPeer bool
}

func (s *Steering) validate() error {
	if s.ByPeer {
		if len(s.Rules) > 0 {
			return errors.New("steering by peer takes no rules")
		}
		return nil
	}
	if len(s.Rules) == 0 || len(s.Rules) > 8 {
		return fmt.Errorf("%d rules: want 1 to 8", len(s.Rules))
	}
	for i, r := range s.Rules {
		if r.Offset < 0 || r.Offset > 1024 || r.Shift > 7 || r.Mask == 0 {
			return fmt.Errorf("rule %d: want an offset of 0 to 1024, a shift of 0 to 7 and a mask other than 0", i)
		}
	}
	return nil
}

func (g *Group) steer(s *Steering) error {
	if err := s.validate(); err != nil {
		return err
	}
	if s.ByPeer {
		return g.steerByPeer()
	}
	return g.steerClassic(s.Rules)
}

// steerClassic attaches a classic program. The kernel runs it on the payload. A load beyond the end of the payload
// makes the program return 0, so lengths are compared first.
func (g *Group) steerClassic(rules []SteerRule) error {
	const miss = 0xffffffff // no such socket: the kernel falls back to its hash
	var program []bpf.Instruction
	for _, r := range rules {
		program = append(program,
			bpf.LoadExtension{Num: bpf.ExtLen},
			bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: uint32(r.Offset), SkipFalse: 7},
			bpf.LoadAbsolute{Off: 0, Size: 1},
			bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: uint32(r.FirstMask)},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(r.FirstValue), SkipFalse: 4},
			bpf.LoadAbsolute{Off: uint32(r.Offset), Size: 1},
			bpf.ALUOpConstant{Op: bpf.ALUOpShiftRight, Val: uint32(r.Shift)},
			bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: uint32(r.Mask)},
			bpf.RetA{},
		)
	}
	program = append(program, bpf.RetConstant{Val: miss})
	raw, err := bpf.Assemble(program)
	if err != nil {
		return fmt.Errorf("assemble the classic program: %w", err)
	}
	return g.attachClassic(raw)
}
