package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/steering/packet"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/programs"
)

// flood sends small UDP datagrams as fast as one thread can, in whole frames past the sender's stack, and counts those
// that arrive intact at a socket of the receiver's namespace.
//
// The receiver's socket has a filter that drops all: the kernel verifies the checksum and counts the drop, and no reader
// can be too slow. On a veth the frames' way through the gateway runs on the sender's core, so the rate is what one core
// can send and carry.
type flood struct {
	Sender                *netlab.Host
	Interface             int // index of the sender's interface
	SourceMAC, GatewayMAC [6]byte
	Source, To            netip.Addr
	Receiver              *netlab.Host
	At                    netip.Addr // where the receiver's socket is bound
	Port                  uint16
	Flows                 int  // source ports, a power of two
	Live                  bool // by the kernel's frame generator instead of a packet socket
	CID                   bool // DTLS 1.2 records with a connection id
	Duration              time.Duration
}

const (
	floodBatch   = 64
	floodPayload = 18 // bytes: the smallest Ethernet frame, with IPv4
	floodFirst   = 20000
)

// run floods for the duration and counts at a socket.
func (f *flood) run(ctx context.Context) (round, error) {
	sink, err := f.openSocketSink()
	if err != nil {
		return round{}, err
	}
	defer unix.Close(sink)
	losses, err := readNetLosses(f.Receiver)
	if err != nil {
		return round{}, err
	}
	var all uint64
	var last uint32 // the kernel's counter has 32 bits and wraps
	r, err := f.count(ctx, func() (uint64, error) {
		now, err := arrived(sink)
		all, last = all+uint64(now-last), now
		return all, err
	})
	if err != nil {
		return round{}, err
	}
	now, err := readNetLosses(f.Receiver)
	if err != nil {
		return round{}, err
	}
	if bad := since(losses, now)[lossChecksum]; bad > 0 {
		return round{}, fmt.Errorf("%d datagrams arrived with a wrong checksum", bad)
	}
	return r, nil
}

// count floods for the duration. The first frame of a path may take a moment (neighbours are resolved): frames are sent slowly
// until most flows have begun, and are not counted.
func (f *flood) count(ctx context.Context, arrived func() (uint64, error)) (r round, err error) {
	sender, err := f.open()
	if err != nil {
		return r, err
	}
	defer sender.close()
	if err := f.warm(ctx, sender, arrived); err != nil {
		return r, err
	}
	before, err := arrived()
	if err != nil {
		return r, err
	}
	if r.sent, r.elapsed, err = sender.send(ctx); err != nil {
		return r, err
	}
	if err := programs.Sleep(ctx, 20*time.Millisecond); err != nil { // what is under way still counts
		return r, err
	}
	after, err := arrived()
	r.packets = after - before
	return r, err
}

// floodSender is one way to send the frames.
type floodSender interface {
	burst() error // a few frames
	send(ctx context.Context) (sent uint64, elapsed time.Duration, err error)
	close()
}

func (f *flood) open() (floodSender, error) {
	if f.Live {
		return f.openLive()
	}
	return f.openSocket()
}

func (f *flood) warm(ctx context.Context, sender floodSender, arrived func() (uint64, error)) error {
	start, err := arrived()
	if err != nil {
		return err
	}
	for range 300 {
		if err := sender.burst(); err != nil {
			return err
		}
		if err := programs.Sleep(ctx, 10*time.Millisecond); err != nil {
			return err
		}
		now, err := arrived()
		if err != nil {
			return err
		}
		if now-start >= uint64(2*f.Flows) { // most flows have begun
			return nil
		}
	}
	return errors.New("datagrams to " + f.To.String() + " do not arrive")
}

// openSocketSink binds the receiver's socket.
func (f *flood) openSocketSink() (fd int, err error) {
	at := netip.AddrPortFrom(f.At, f.Port)
	err = f.Receiver.Do(func() (err error) {
		if fd, err = unix.Socket(family(at), unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return fmt.Errorf("open a socket: %w", err)
		}
		if err = dropAll(fd); err == nil {
			err = unix.Bind(fd, sockaddr(at))
		}
		if err != nil {
			unix.Close(fd)
			return fmt.Errorf("receive on %v: %w", at, err)
		}
		return nil
	})
	return fd, err
}

// dropAll has the kernel drop and count what arrives at a socket.
func dropAll(fd int) error {
	filter := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &filter[0]})
}

// arrived is how many datagrams the sink's filter has dropped.
func arrived(sink int) (uint32, error) {
	const (
		soMeminfo = 55
		drops     = 8 // SK_MEMINFO_DROPS
	)
	var info [9]uint32
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(sink), unix.SOL_SOCKET, soMeminfo, uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return 0, fmt.Errorf("count what arrived: %w", errno)
	}
	return info[drops], nil
}

// socketSender sends whole frames through a packet socket, as a program on the sender would.
type socketSender struct {
	flood   *flood
	fd      int
	batches [][]mmsghdr
	next    int
}

// openSocket opens the socket in the sender's namespace.
func (f *flood) openSocket() (*socketSender, error) {
	s := &socketSender{flood: f, batches: f.batches()}
	err := f.Sender.Do(func() (err error) { s.fd, err = sendingSocket(f.Interface); return err })
	if err != nil {
		return nil, err
	}
	return s, unix.SetNonblock(s.fd, false) // a full send buffer holds the sender up
}

func (s *socketSender) close() { unix.Close(s.fd) }

func (s *socketSender) burst() error {
	s.next++
	_, err := sendmmsg(s.fd, s.batches[s.next%len(s.batches)])
	return err
}

// send repeats the batches until the time is over.
func (s *socketSender) send(ctx context.Context) (sent uint64, elapsed time.Duration, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	start := time.Now()
	for i := 0; elapsed < s.flood.Duration; i++ {
		n, err := sendmmsg(s.fd, s.batches[i%len(s.batches)])
		if err != nil {
			return sent, elapsed, err
		}
		sent += uint64(n)
		if elapsed = time.Since(start); ctx.Err() != nil {
			return sent, elapsed, ctx.Err()
		}
	}
	return sent, elapsed, nil
}

// mmsghdr is the kernel's struct mmsghdr.
type mmsghdr struct {
	header unix.Msghdr
	length uint32
	_      [4]byte
}

// batches are the frames of all flows, ready to send.
func (f *flood) batches() [][]mmsghdr {
	all := make([][]mmsghdr, (f.Flows+floodBatch-1)/floodBatch)
	for i := range all {
		all[i] = make([]mmsghdr, floodBatch)
		for j := range all[i] {
			all[i][j].header = unix.Msghdr{Iov: &unix.Iovec{}, Iovlen: 1}
			fill(&all[i][j], f.frame(uint16(floodFirst+(i*floodBatch+j)%f.Flows)))
		}
	}
	return all
}

func sendmmsg(fd int, batch []mmsghdr) (int, error) {
	n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&batch[0])), uintptr(len(batch)), 0, 0, 0)
	switch errno {
	case 0:
		return int(n), nil
	case unix.ENOBUFS, unix.EAGAIN, unix.EINTR: // the ring of the veth is full: not sent
		return 0, nil
	}
	return 0, fmt.Errorf("send frames: %w", errno)
}

// frame is one datagram with its headers and checksums.
func (f *flood) frame(sourcePort uint16) []byte {
	b := packet.Build{
		Src: netip.AddrPortFrom(f.Source, sourcePort), Dst: netip.AddrPortFrom(f.To, f.Port), Proto: unix.IPPROTO_UDP, Payload: f.payload(),
	}
	return b.AppendFrame(nil, f.GatewayMAC, f.SourceMAC, b.Append(nil))
}

// floodVaried is where the payload has a word that is 0xffff in the first flow and less in the others, so that the checksum
// is the same.
const floodVaried = 8

// floodOwner is the node of the connection ids, floodCID their length.
const floodOwner, floodCID = 1, 4

// payload is what the first flow carries.
func (f *flood) payload() []byte {
	if !f.CID {
		return []byte("weir ben\xff\xffpayload.")[:floodPayload]
	}
	// Type, version, epoch, sequence number, connection id, length, a byte of ciphertext (RFC 9146 section 4).
	return []byte{25, 0xfe, 0xfd, 0, 1, 0, 0, 0, 0xff, 0xff, 7, floodOwner, 0, 0, 0, 0, 1, 0x5a}
}
