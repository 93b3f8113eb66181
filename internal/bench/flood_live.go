package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// liveSender lets the kernel send: a small XDP program, run over and over by BPF_PROG_TEST_RUN with live frames, writes
// each frame again and redirects it to the sender's interface. Nothing is allocated or copied for a frame, so most of the
// core is left to what is measured: about 200 ns of it goes into sending.
//
// What arrives at a veth this way is lost unless the receiving end polls, as it does with an XDP program on it or with
// GRO switched on.
type liveSender struct {
	flood   *flood
	program *ebpf.Program
}

// liveRun is how many frames one system call sends at least, in less than a second an eighth of them: setting one up and waiting for its end
// costs up to 20 ms. A call of liveMost ends within seconds, also on a slow path.
const liveRun, liveMost = 1 << 19, 1 << 23

func (f *flood) openLive() (*liveSender, error) {
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL", Instructions: f.liveProgram()})
	if err != nil {
		return nil, fmt.Errorf("frame generator: %w", err)
	}
	return &liveSender{f, program}, nil
}

func (s *liveSender) close() { s.program.Close() }

func (s *liveSender) burst() error {
	return s.flood.Sender.Do(func() error { return s.run(max(s.flood.Flows, 4*floodBatch)) })
}

func (s *liveSender) send(ctx context.Context) (sent uint64, elapsed time.Duration, err error) {
	err = s.flood.Sender.Do(func() error { // the kernel looks the interface up in the namespace of the thread
		restore, err := stayOnCPU()
		if err != nil {
			return err
		}
		defer restore()
		least := liveRun
		if s.flood.Duration < time.Second {
			least /= 8
		}
		frames := least
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
			frames = min(max(int(float64(sent)*left), least), liveMost) // the rest in one call
		}
		return nil
	})
	return sent, elapsed, err
}

// stayOnCPU keeps the calling thread, which must be locked, on the processor that it runs on: the whole path runs there.
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
		program: uint32(s.program.FD()), sizeIn: uint32(len(frame)), in: uint64(uintptr(unsafe.Pointer(&frame[0]))),
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
func (f *flood) liveProgram() asm.Instructions {
	frame := f.frame(floodFirst)
	udp := int16(34)
	if f.To.Is6() {
		udp = 54
	}
	varied := udp + 8 + floodVaried
	program := asm.Instructions{
		asm.LoadMem(asm.R7, asm.R1, 0, asm.Word), // data and data_end of struct xdp_md
		asm.LoadMem(asm.R3, asm.R1, 4, asm.Word),
		asm.Mov.Reg(asm.R4, asm.R7),
		asm.Add.Imm(asm.R4, int32(len(frame))),
		asm.Mov.Imm(asm.R0, 0),
		asm.JGT.Reg(asm.R4, asm.R3, "end"),
	}
	at := 0
	for ; at+8 <= len(frame); at += 8 {
		program = append(program, asm.LoadImm(asm.R5, int64(binary.LittleEndian.Uint64(frame[at:])), asm.DWord), asm.StoreMem(asm.R7, int16(at), asm.R5, asm.DWord))
	}
	for ; at+4 <= len(frame); at += 4 { // frames are a multiple of 4 long
		program = append(program, asm.StoreImm(asm.R7, int16(at), int64(int32(binary.LittleEndian.Uint32(frame[at:]))), asm.Word))
	}
	return append(program,
		asm.FnGetPrandomU32.Call(),
		asm.And.Imm(asm.R0, int32(f.Flows-1)),
		asm.Mov.Imm(asm.R2, int32(binary.BigEndian.Uint16(frame[varied:]))),
		asm.Sub.Reg(asm.R2, asm.R0),
		asm.HostTo(asm.BE, asm.R2, asm.Half),
		asm.StoreMem(asm.R7, varied, asm.R2, asm.Half),
		asm.Add.Imm(asm.R0, floodFirst),
		asm.HostTo(asm.BE, asm.R0, asm.Half),
		asm.StoreMem(asm.R7, udp, asm.R0, asm.Half),
		asm.Mov.Imm(asm.R1, int32(f.Interface)),
		asm.Mov.Imm(asm.R2, 0),
		asm.FnRedirect.Call(),
		asm.Return().WithSymbol("end"),
	)
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
