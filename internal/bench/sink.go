package bench

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/testbed/netlab"
)

// sink is a program where the frames of a flood end: it counts and drops UDP, and lets everything else pass, so that
// neighbours find each other.
type sink struct {
	counter       *counter
	program, link int
}

// openSink attaches one to an interface: an XDP program, which a veth hands bare frames and which makes it poll, or one on
// the TCX hook, which gets socket buffers.
func openSink(host *netlab.Host, name string, xdp bool) (*sink, error) {
	index, _, err := host.Interface(name)
	if err != nil {
		return nil, err
	}
	s := &sink{program: -1, link: -1}
	if s.counter, err = newCounter(); err != nil {
		return nil, err
	}
	kind := uint32(programTC)
	if xdp {
		kind = programXDP
	}
	if s.program, err = loadProgram(kind, sinkProgram(kind, s.counter.fd)); err == nil {
		err = host.Do(func() (err error) {
			s.link, err = attach(kind, s.program, index)
			return err
		})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("sink at %s: %w", name, err), s.close())
	}
	return s, nil
}

func (s *sink) close() error {
	var errs []error
	for _, fd := range []int{s.link, s.program, s.counter.fd} {
		if fd >= 0 {
			errs = append(errs, unix.Close(fd))
		}
	}
	return errors.Join(errs...)
}

// sinkProgram counts and drops UDP packets without options or extension headers.
func sinkProgram(kind uint32, counter int) []instruction {
	const (
		load32, load16, load8, load64  = 0x61, 0x69, 0x71, 0x79
		store64, storeImm32, imm64     = 0x7b, 0x62, 0x18
		move, moveImm, addImm, add     = 0xbf, 0xb7, 0x07, 0x0f
		jump, jumpGreater              = 0x05, 0x2d
		jumpEqualImm, jumpNotEqualImm  = 0x15, 0x55
		call, exit                     = 0x85, 0x95
		r0, r1, r2, r3, r4, r5, r7, fp = 0, 1, 2, 3, 4, 5, 7, 10
		mapLookUp, mapDescriptor       = 1, 1
		headers                        = 24 // bytes to the end of what is read
		four, six                      = 0x0008, 0xdd86
	)
	data, end, drop, pass := int16(0), int16(4), int32(1), int32(2) // struct xdp_md, enum xdp_action
	if kind == programTC {
		data, end, drop, pass = 76, 80, 2, -1 // struct __sk_buff, enum tcx_action_base
	}
	return []instruction{
		0:  {load32, r7 | r1<<4, data, 0},
		1:  {load32, r3 | r1<<4, end, 0},
		2:  {move, r4 | r7<<4, 0, 0},
		3:  {addImm, r4, 0, headers},
		4:  {jumpGreater, r4 | r3<<4, 19, 0}, // to pass
		5:  {load16, r5 | r7<<4, 12, 0},
		6:  {jumpEqualImm, r5, 3, four},
		7:  {jumpNotEqualImm, r5, 16, six},
		8:  {load8, r5 | r7<<4, 20, 0},
		9:  {jump, 0, 1, 0},
		10: {load8, r5 | r7<<4, 23, 0},
		11: {jumpNotEqualImm, r5, 12, unix.IPPROTO_UDP},
		12: {storeImm32, fp, -4, 0},
		13: {imm64, r1 | mapDescriptor<<4, 0, int32(counter)},
		14: {},
		15: {move, r2 | fp<<4, 0, 0},
		16: {addImm, r2, 0, -4},
		17: {call, 0, 0, mapLookUp},
		18: {jumpEqualImm, r0, 3, 0},
		19: {load64, r1 | r0<<4, 0, 0},
		20: {addImm, r1, 0, 1},
		21: {store64, r0 | r1<<4, 0, 0},
		22: {moveImm, r0, 0, drop},
		23: {exit, 0, 0, 0},
		24: {moveImm, r0, 0, pass},
		25: {exit, 0, 0, 0},
	}
}
