package bench

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// instruction is one eBPF instruction.
type instruction struct {
	code   uint8
	regs   uint8 // destination, and source shifted by 4
	offset int16
	imm    int32
}

// Kinds of programs, as the kernel numbers them.
const (
	programTC  = 3
	programXDP = 6
)

// loadProgram loads a program; the error carries the end of what the verifier says.
func loadProgram(kind uint32, program []instruction) (fd int, err error) {
	const progLoad = 5
	license := []byte("GPL\x00")
	log := make([]byte, 1<<16)
	var pinned runtime.Pinner
	defer pinned.Unpin()
	pinned.Pin(&program[0])
	pinned.Pin(&license[0])
	pinned.Pin(&log[0])
	attr := struct {
		kind, count       uint32
		program, license  uint64
		logLevel, logSize uint32
		log               uint64
		_                 [88]byte
	}{
		kind: kind, count: uint32(len(program)), program: uint64(uintptr(unsafe.Pointer(&program[0]))),
		license: uint64(uintptr(unsafe.Pointer(&license[0]))), logLevel: 1, logSize: uint32(len(log)), log: uint64(uintptr(unsafe.Pointer(&log[0]))),
	}
	r, _, errno := unix.Syscall(unix.SYS_BPF, progLoad, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	if errno != 0 {
		text, _, _ := bytes.Cut(log, []byte{0})
		return 0, fmt.Errorf("load: %w: %s", errno, text[max(0, len(text)-500):])
	}
	return int(r), nil
}

// counter is a map of one 64-bit number for each processor.
type counter struct {
	fd   int
	cpus int
}

func newCounter() (*counter, error) {
	const (
		mapCreate   = 0
		percpuArray = 6
	)
	cpus, err := possibleCPUs()
	if err != nil {
		return nil, err
	}
	attr := struct {
		kind, key, value, entries uint32
		_                         [112]byte
	}{kind: percpuArray, key: 4, value: 8, entries: 1}
	fd, _, errno := unix.Syscall(unix.SYS_BPF, mapCreate, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	if errno != 0 {
		return nil, fmt.Errorf("make a counter: %w", errno)
	}
	return &counter{int(fd), cpus}, nil
}

// sum is the number of all processors together.
func (c *counter) sum() (uint64, error) {
	const lookUp = 1
	var key uint32
	values := make([]uint64, c.cpus)
	var pinned runtime.Pinner
	defer pinned.Unpin()
	pinned.Pin(&key)
	pinned.Pin(&values[0])
	attr := struct {
		fd, _             uint32
		key, value, flags uint64
	}{fd: uint32(c.fd), key: uint64(uintptr(unsafe.Pointer(&key))), value: uint64(uintptr(unsafe.Pointer(&values[0])))}
	if _, _, errno := unix.Syscall(unix.SYS_BPF, lookUp, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr)); errno != 0 {
		return 0, fmt.Errorf("read a counter: %w", errno)
	}
	var sum uint64
	for _, v := range values {
		sum += v
	}
	return sum, nil
}

// possibleCPUs is how many processors the kernel has room for, in lists such as 0-3,8-11.
func possibleCPUs() (int, error) {
	const file = "/sys/devices/system/cpu/possible"
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, fmt.Errorf("count processors: %w", err)
	}
	last := strings.TrimSpace(string(text))
	last = last[strings.LastIndexAny(last, "-,")+1:]
	n, err := strconv.Atoi(last)
	if err != nil || n < 0 || n >= 1<<16 {
		return 0, fmt.Errorf("count processors: %s says %q", file, text)
	}
	return n + 1, nil
}

// attach attaches a program to an interface of the calling thread's namespace, for as long as the link is open.
func attach(kind uint32, program, index int) (link int, err error) {
	const (
		linkCreate = 28
		xdp        = 37
		tcxIngress = 46
	)
	attr := struct{ program, index, hook, flags uint32 }{uint32(program), uint32(index), tcxIngress, 0}
	if kind == programXDP {
		attr.hook = xdp
	}
	fd, _, errno := unix.Syscall(unix.SYS_BPF, linkCreate, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	if errno != 0 {
		return 0, fmt.Errorf("attach to interface %d: %w", index, errno)
	}
	return int(fd), nil
}
