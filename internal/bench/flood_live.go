package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// liveSender lets the kernel send: a small XDP program, run over and over by BPF_PROG_TEST_RUN with live frames, writes
// each frame anew and redirects it to the sender's interface. Nothing is allocated or copied for a frame, so most of the
// core is left to what is measured: about 200 ns of it goes into sending.
//
// What arrives at a veth this way is lost unless the receiving end polls, as it does with an XDP program on it or with
// GRO switched on.
type liveSender struct {
	flood   *flood
	program int
}

// liveRun is how many frames one system call sends at least: setting one up and waiting for its end costs up to 20 ms. A call
// of liveMost ends within seconds, also on a slow road.
const liveRun, liveMost = 1 << 19, 1 << 23

func (f *flood) openLive() (*liveSender, error) {
	program, err := loadProgram(programXDP, f.liveProgram())
	if err != nil {
		return nil, fmt.Errorf("frame generator: %w", err)
	}
	return &liveSender{f, program}, nil
}

func (s *liveSender) close() { unix.Close(s.program) }

func (s *liveSender) burst() error {
	return s.flood.Sender.Do(func() error { return s.run(4 * floodBatch) })
}

func (s *liveSender) send(ctx context.Context) (sent uint64, elapsed time.Duration, err error) {
	err = s.flood.Sender.Do(func() error { // the kernel looks the interface up in the namespace of the thread
		restore, err := stayOnCPU()
		if err != nil {
			return err
		}
		defer restore()
		frames := liveRun
		for start := time.Now(); elapsed < s.flood.Duration; {
			if err := s.run(frames); err != nil {
				return err
			}
			sent += uint64(frames)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			elapsed = time.Since(start)
			left := float64(s.flood.Duration-elapsed) / float64(elapsed)
			frames = min(max(int(float64(sent)*left), liveRun), liveMost) // the rest in one call
		}
		return nil
	})
	return sent, elapsed, err
}

// stayOnCPU keeps the calling thread, which must be locked, on the processor that it runs on: the whole road runs there.
func stayOnCPU() (restore func(), err error) {
	var before, only unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return nil, fmt.Errorf("processors of the generator: %w", err)
	}
	var now uint32
	if _, _, errno := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&now)), 0, 0); errno != 0 {
		return nil, fmt.Errorf("processor of the generator: %w", errno)
	}
	only.Set(int(now))
	if err := unix.SchedSetaffinity(0, &only); err != nil {
		return nil, fmt.Errorf("keep the generator on processor %d: %w", now, err)
	}
	return func() { _ = unix.SchedSetaffinity(0, &before) }, nil // it was in force before
}

// testRunAttr is the kernel's union bpf_attr of BPF_PROG_TEST_RUN.
type testRunAttr struct {
	program, _           uint32
	sizeIn, _            uint32
	in, _                uint64
	repeat, _            uint32
	_, _                 uint32 // sizes of the context
	_, _                 uint64 // context
	flags, _, batch, pad uint32
}

func (s *liveSender) run(frames int) error {
	const (
		testRun    = 10
		liveFrames = 1 << 1
	)
	frame := s.flood.frame(floodFirst)
	var pinned runtime.Pinner // the kernel is given addresses as numbers
	defer pinned.Unpin()
	pinned.Pin(&frame[0])
	attr := testRunAttr{
		program: uint32(s.program), sizeIn: uint32(len(frame)), in: uint64(uintptr(unsafe.Pointer(&frame[0]))),
		repeat: uint32(frames), flags: liveFrames, batch: floodBatch,
	}
	_, _, errno := unix.Syscall(unix.SYS_BPF, testRun, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	if errno != 0 && errno != unix.EINTR { // the scheduler's signals end a run early; what arrives is counted
		return fmt.Errorf("run the frame generator: %w", errno)
	}
	return nil
}

// liveProgram writes the frame of the first flow, then makes it one of a random flow: what is added to the source port
// is taken from a word of the payload, so the checksum holds.
func (f *flood) liveProgram() []instruction {
	const (
		load32, store64, store16     = 0x61, 0x7b, 0x6b
		imm64, storeImm32            = 0x18, 0x62
		move, moveImm, addImm        = 0xbf, 0xb7, 0x07
		subtract, andImm, toBE       = 0x1f, 0x57, 0xdc
		jumpGreater, call, exit      = 0x2d, 0x85, 0x95
		r0, r1, r2, r3, r4, r5, r7   = 0, 1, 2, 3, 4, 5, 7
		randomHelper, redirectHelper = 7, 23
		dataOffset, dataEndOffset    = 0, 4
	)
	frame := f.frame(floodFirst)
	udp := int16(34)
	if f.To.Is6() {
		udp = 54
	}
	varied := udp + 8 + floodVaried
	word := int32(binary.BigEndian.Uint16(frame[varied:]))
	program := []instruction{
		{load32, r7 | r1<<4, dataOffset, 0},
		{load32, r3 | r1<<4, dataEndOffset, 0},
		{move, r4 | r7<<4, 0, 0},
		{addImm, r4, 0, int32(len(frame))},
		{moveImm, r0, 0, 0},
		{jumpGreater, r4 | r3<<4, 0, 0}, // to the end; set below
	}
	jump := len(program) - 1
	at := 0
	for ; at+8 <= len(frame); at += 8 {
		low, high := binary.LittleEndian.Uint32(frame[at:]), binary.LittleEndian.Uint32(frame[at+4:])
		program = append(program,
			instruction{imm64, r5, 0, int32(low)}, instruction{0, 0, 0, int32(high)},
			instruction{store64, r7 | r5<<4, int16(at), 0})
	}
	for ; at+4 <= len(frame); at += 4 { // frames are a multiple of 4 long
		program = append(program, instruction{storeImm32, r7, int16(at), int32(binary.LittleEndian.Uint32(frame[at:]))})
	}
	program = append(program,
		instruction{call, 0, 0, randomHelper},
		instruction{andImm, r0, 0, int32(f.Flows - 1)},
		instruction{moveImm, r2, 0, word},
		instruction{subtract, r2 | r0<<4, 0, 0},
		instruction{toBE, r2, 0, 16},
		instruction{store16, r7 | r2<<4, varied, 0},
		instruction{addImm, r0, 0, floodFirst},
		instruction{toBE, r0, 0, 16},
		instruction{store16, r7 | r0<<4, udp, 0},
		instruction{moveImm, r1, 0, int32(f.Interface)},
		instruction{moveImm, r2, 0, 0},
		instruction{call, 0, 0, redirectHelper},
		instruction{exit, 0, 0, 0},
	)
	program[jump].offset = int16(len(program) - 2 - jump)
	return program
}

// setGRO switches generic receive offload of an interface of the calling thread's namespace, and returns how it was.
func setGRO(name string, on bool) (was bool, err error) {
	const get, set = 0x2b, 0x2c // ETHTOOL_GGRO, ETHTOOL_SGRO
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false, fmt.Errorf("offloads of %s: %w", name, err)
	}
	defer unix.Close(fd)
	var value struct{ command, data uint32 }
	request := struct {
		name [unix.IFNAMSIZ]byte
		data uintptr
		_    [16]byte
	}{}
	copy(request.name[:unix.IFNAMSIZ-1], name)
	do := func() error {
		var pinned runtime.Pinner
		pinned.Pin(&value)
		defer pinned.Unpin()
		request.data = uintptr(unsafe.Pointer(&value))
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request))); errno != 0 {
			return fmt.Errorf("offloads of %s: %w", name, errno)
		}
		return nil
	}
	value.command = get
	if err := do(); err != nil {
		return false, err
	}
	if was = value.data != 0; was == on {
		return was, nil
	}
	value.command, value.data = set, 0
	if on {
		value.data = 1
	}
	return was, do()
}
