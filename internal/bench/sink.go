package bench

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/testbed/netlab"
)

// sink is a program where the frames of a flood end: it counts and drops UDP, and lets everything else pass, so that
// neighbours find each other.
type sink struct {
	counter *ebpf.Map // one number for each processor
	program *ebpf.Program
	link    link.Link
}

// openSink attaches one to an interface: an XDP program, which a veth hands bare frames and which makes it poll, or one on
// the TCX hook, which gets socket buffers.
func openSink(host *netlab.Host, name string, xdp bool) (*sink, error) {
	index, _, err := host.Interface(name)
	if err != nil {
		return nil, err
	}
	s := &sink{}
	if s.counter, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 8, MaxEntries: 1}); err != nil {
		return nil, fmt.Errorf("sink at %s: make a counter: %w", name, err)
	}
	kind := ebpf.SchedCLS
	if xdp {
		kind = ebpf.XDP
	}
	if s.program, err = ebpf.NewProgram(&ebpf.ProgramSpec{Type: kind, License: "GPL", Instructions: sinkProgram(xdp, s.counter)}); err == nil {
		err = host.Do(func() (err error) {
			if xdp {
				s.link, err = link.AttachXDP(link.XDPOptions{Program: s.program, Interface: index})
			} else {
				s.link, err = link.AttachTCX(link.TCXOptions{Program: s.program, Interface: index, Attach: ebpf.AttachTCXIngress})
			}
			return err
		})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("sink at %s: %w", name, err), s.close())
	}
	return s, nil
}

// sum is how many packets it has dropped.
func (s *sink) sum() (sum uint64, err error) {
	var values []uint64
	if err := s.counter.Lookup(uint32(0), &values); err != nil {
		return 0, fmt.Errorf("read a counter: %w", err)
	}
	for _, v := range values {
		sum += v
	}
	return sum, nil
}

func (s *sink) close() error {
	var err error
	if s.link != nil {
		err = s.link.Close()
	}
	return errors.Join(err, s.program.Close(), s.counter.Close()) // of nil nothing is closed
}

// sinkProgram counts and drops UDP packets without options or extension headers.
func sinkProgram(xdp bool, counter *ebpf.Map) asm.Instructions {
	const (
		headers   = 24             // bytes to the end of what is read
		four, six = 0x0008, 0xdd86 // Ethernet types as a little-endian machine loads them
	)
	data, end, drop, pass := int16(76), int16(80), int32(2), int32(-1) // struct __sk_buff, enum tcx_action_base
	if xdp {
		data, end, drop, pass = 0, 4, 1, 2 // struct xdp_md, enum xdp_action
	}
	return asm.Instructions{
		asm.LoadMem(asm.R7, asm.R1, data, asm.Word),
		asm.LoadMem(asm.R3, asm.R1, end, asm.Word),
		asm.Mov.Reg(asm.R4, asm.R7),
		asm.Add.Imm(asm.R4, headers),
		asm.JGT.Reg(asm.R4, asm.R3, "pass"),
		asm.LoadMem(asm.R5, asm.R7, 12, asm.Half),
		asm.JEq.Imm(asm.R5, four, "four"),
		asm.JNE.Imm(asm.R5, six, "pass"),
		asm.LoadMem(asm.R5, asm.R7, 20, asm.Byte),
		asm.Ja.Label("protocol"),
		asm.LoadMem(asm.R5, asm.R7, 23, asm.Byte).WithSymbol("four"),
		asm.JNE.Imm(asm.R5, unix.IPPROTO_UDP, "pass").WithSymbol("protocol"),
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, counter.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "drop"),
		asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord),
		asm.Add.Imm(asm.R1, 1),
		asm.StoreMem(asm.R0, 0, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, drop).WithSymbol("drop"),
		asm.Return(),
		asm.Mov.Imm(asm.R0, pass).WithSymbol("pass"),
		asm.Return(),
	}
}
