package udpio

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
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

// SteerDTLS13 is the rule for DTLS 1.3 records with a CID (RFC 9147 section 4: first byte 001C...., CID at offset 1).
func SteerDTLS13(i int, shift uint8, mask byte) SteerRule {
	return SteerRule{FirstMask: 0xf0, FirstValue: 0x30, Offset: 1 + i, Shift: shift, Mask: mask}
}

// SteerQUIC is the rule for QUIC packets with a short header (RFC 9000 section 17.3: CID at offset 1).
func SteerQUIC(i int, shift uint8, mask byte) SteerRule {
	return SteerRule{FirstMask: 0xc0, FirstValue: 0x40, Offset: 1 + i, Shift: shift, Mask: mask}
}

// Steering is a list of rules and how to run them.
type Steering struct {
	Rules []SteerRule
	// EBPF runs the rules as an eBPF program, which needs CAP_BPF. The value is then looked up in a table that
	// Group.Assign changes at run time. Otherwise a classic BPF program, which needs no privilege, uses the value as
	// the index of the socket.
	EBPF bool
	// ByPeer, instead of rules, steers all datagrams of a peer's address and port to the socket that PeerSocket
	// returns, so that another process can compute which one it was. The hash has no secret, so a peer that chooses
	// its ports can choose its socket. Extension headers of IPv6 count as ports.
	ByPeer bool
}

const steerValues = 256

// steeringMaps is what the eBPF program reads: value → index+1 (0: none), index → socket.
type steeringMaps struct {
	table, sockets *ebpf.Map
}

func (s *steeringMaps) close() error { return errors.Join(s.table.Close(), s.sockets.Close()) }

func (s *Steering) validate() error {
	if s.ByPeer {
		if len(s.Rules) > 0 || s.EBPF {
			return errors.New("steering by peer takes no rules and no eBPF")
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
	if s.EBPF {
		return g.steerEBPF(s.Rules)
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

// steerEBPF loads and attaches the eBPF program; loading needs CAP_BPF.
func (g *Group) steerEBPF(rules []SteerRule) (err error) {
	maps := &steeringMaps{}
	maps.table, err = ebpf.NewMap(&ebpf.MapSpec{Name: "weir_steer", Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: steerValues})
	if err != nil {
		return fmt.Errorf("make the steering table: %w", err)
	}
	maps.sockets, err = ebpf.NewMap(&ebpf.MapSpec{Name: "weir_socks", Type: ebpf.ReusePortSockArray, KeySize: 4, ValueSize: 8, MaxEntries: uint32(len(g.conns))})
	if err != nil {
		_ = maps.table.Close()
		return fmt.Errorf("make the socket array: %w", err)
	}
	defer func() {
		if err != nil {
			_ = maps.close()
		}
	}()
	for i, c := range g.conns {
		if err := maps.sockets.Put(uint32(i), uint64(c.fd)); err != nil {
			return fmt.Errorf("enter socket %d: %w", i, err)
		}
	}
	for value := range min(steerValues, len(g.conns)) {
		if err := maps.table.Put(uint32(value), uint32(value+1)); err != nil {
			return fmt.Errorf("enter value %d: %w", value, err)
		}
	}
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "weir_steer", Type: ebpf.SkReuseport, License: "Dual BSD/GPL", Instructions: steerProgram(rules, maps),
	})
	if err != nil {
		return fmt.Errorf("load the eBPF program (it needs CAP_BPF; the classic one does not): %w", err)
	}
	defer program.Close()
	if err := unix.SetsockoptInt(g.conns[0].fd, unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_EBPF, program.FD()); err != nil {
		return fmt.Errorf("attach the eBPF program: %w", err)
	}
	g.steering = maps
	return nil
}

// steerProgram reads through bpf_skb_load_bytes, because the payload may lie outside the linear part. The context's
// data starts at the UDP header.
func steerProgram(rules []SteerRule, maps *steeringMaps) asm.Instructions {
	const udpHeader = 8
	const scratch, key = -4, -8 // stack: one byte read, then the key of a look-up
	load := func(offset int, miss string) asm.Instructions {
		return asm.Instructions{
			asm.Mov.Reg(asm.R1, asm.R6),
			asm.Mov.Imm(asm.R2, int32(offset)),
			asm.Mov.Reg(asm.R3, asm.RFP),
			asm.Add.Imm(asm.R3, scratch),
			asm.Mov.Imm(asm.R4, 1),
			asm.FnSkbLoadBytes.Call(),
			asm.JNE.Imm(asm.R0, 0, miss),
			asm.LoadMem(asm.R7, asm.RFP, scratch, asm.Byte),
		}
	}
	program := asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)}
	for i, r := range rules {
		next := "pass"
		if i+1 < len(rules) {
			next = fmt.Sprintf("rule%d", i+1)
		}
		body := load(udpHeader, next)
		body = append(body,
			asm.And.Imm(asm.R7, int32(r.FirstMask)),
			asm.JNE.Imm(asm.R7, int32(r.FirstValue), next),
		)
		body = append(body, load(udpHeader+r.Offset, next)...)
		body = append(body,
			asm.RSh.Imm(asm.R7, int32(r.Shift)),
			asm.And.Imm(asm.R7, int32(r.Mask)),
			asm.Ja.Label("select"),
		)
		if i > 0 {
			body[0] = body[0].WithSymbol(fmt.Sprintf("rule%d", i))
		}
		program = append(program, body...)
	}
	return append(program,
		asm.StoreMem(asm.RFP, key, asm.R7, asm.Word).WithSymbol("select"),
		asm.LoadMapPtr(asm.R1, maps.table.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, key),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "pass"),
		asm.LoadMem(asm.R7, asm.R0, 0, asm.Word),
		asm.JEq.Imm(asm.R7, 0, "pass"),
		asm.Sub.Imm(asm.R7, 1),
		asm.StoreMem(asm.RFP, key, asm.R7, asm.Word),
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.LoadMapPtr(asm.R2, maps.sockets.FD()),
		asm.Mov.Reg(asm.R3, asm.RFP),
		asm.Add.Imm(asm.R3, key),
		asm.Mov.Imm(asm.R4, 0),
		asm.FnSkSelectReuseport.Call(),
		// Without a selection the kernel falls back to its hash.
		asm.Mov.Imm(asm.R0, 1).WithSymbol("pass"),
		asm.Return(),
	)
}

// Assign steers datagrams with a value to socket i of the group; with i < 0 the kernel's hash selects the socket. It
// needs Steering.EBPF. Any goroutine may call it until Close.
func (g *Group) Assign(value byte, i int) error {
	if g.steering == nil {
		return errors.New("assign a steering value: the group has no eBPF steering")
	}
	if i >= len(g.conns) {
		return fmt.Errorf("assign steering value %d: no socket %d in a group of %d", value, i, len(g.conns))
	}
	if err := g.steering.table.Put(uint32(value), uint32(max(i, -1)+1)); err != nil {
		return fmt.Errorf("assign steering value %d: %w", value, err)
	}
	return nil
}
