package nfqueue

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// idleTimeout is the maximum time of one sleep of a worker. The receive timeout of the socket has the same value.
const idleTimeout = time.Second

// wakeSequence is the sequence number of the acknowledgement that Wake requests.
const wakeSequence = 0x57454952

// mmsghdr is struct mmsghdr of recvmmsg(2).
type mmsghdr struct {
	header unix.Msghdr
	length uint32
	_      [4]byte
}

// queueCounters counts events of a queue's socket.
type queueCounters struct {
	sleeps    atomic.Uint64 // times that the worker slept
	refused   atomic.Uint64 // verdicts that the kernel refused because the packet was gone, for example with its interface
	odd       atomic.Uint64 // messages that do not come from a queue
	truncated atomic.Uint64 // messages longer than the receive buffer
}

// kernelQueue is a queue of the kernel, with a netlink socket of its own.
type kernelQueue struct {
	queueCounters
	fd     int
	number uint16
	bound  bool
	closed bool

	messages []mmsghdr
	vectors  []unix.Iovec
	buffers  []byte
	size     int // of one buffer
	answers  []byte
	ready    [1]unix.PollFd
	limit    unix.Timespec

	spin    int // tries before a sleep; adapted while running
	maxSpin int
	quick   time.Duration // a shorter sleep shows that spinning would have been better

	sequence uint32 // of the last configuration message
	buffer   int    // SO_RCVBUF in force
	forced   bool   // the buffer may exceed net.core.rmem_max
}

// tryCost is the approximate time of one try. It converts the spin time into a number of tries.
const tryCost = 250 * time.Nanosecond

// openQueue opens the socket of one queue. The queue is not taken before bind.
func openQueue(c *Config, number uint16) (*kernelQueue, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	q := &kernelQueue{
		fd: fd, number: number, size: align4(c.CopyRange + messageOverhead),
		maxSpin: int(c.Spin / tryCost), quick: c.Spin,
	}
	if err := q.prepare(c); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("prepare the netlink socket of queue %d: %w", number, err)
	}
	q.messages, q.vectors = make([]mmsghdr, c.Batch), make([]unix.Iovec, c.Batch)
	q.buffers = make([]byte, c.Batch*q.size)
	q.answers = make([]byte, 0, c.Batch*verdictMarkedLength)
	for i := range q.messages {
		q.vectors[i].Base = &q.buffers[i*q.size]
		q.vectors[i].SetLen(q.size)
		q.messages[i].header.Iov = &q.vectors[i]
		q.messages[i].header.SetIovlen(1)
	}
	return q, nil
}

func (q *kernelQueue) prepare(c *Config) error {
	if err := unix.Bind(q.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	// The kernel counts a full buffer as user_dropped, so it need not also report it as an error of the next read.
	if err := unix.SetsockoptInt(q.fd, unix.SOL_NETLINK, unix.NETLINK_NO_ENOBUFS, 1); err != nil {
		return err
	}
	if err := unix.SetsockoptInt(q.fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1); err != nil {
		return err
	}
	q.forced = unix.SetsockoptInt(q.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, c.ReceiveBuffer) == nil
	if !q.forced {
		if err := unix.SetsockoptInt(q.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, c.ReceiveBuffer); err != nil {
			return err
		}
	}
	pollTimeout := unix.NsecToTimeval(int64(idleTimeout))
	if err := unix.SetsockoptTimeval(q.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &pollTimeout); err != nil {
		return err
	}
	var err error
	q.buffer, err = unix.GetsockoptInt(q.fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
	return err
}

// bind binds the queue and sets what the kernel delivers. Packets arrive from then on.
func (q *kernelQueue) bind(c *Config) error {
	if err := q.configure(commandAttr(commandBind)); err != nil {
		return err
	}
	q.bound = true
	flags := uint32(flagGSO) // without it the kernel splits large segments and computes each checksum, which costs most of the throughput
	if c.FailOpen {
		flags |= flagFailOpen
	}
	return q.configure(
		paramsAttr(c.CopyRange),
		attr32(configMaxLength, uint32(c.Length)),
		attr32(configFlags, flags),
		attr32(configMask, flagFailOpen|flagConntrk|flagGSO|flagUIDGID|flagSecurity),
	)
}

// unbind releases the queue and keeps the socket for another attempt.
func (q *kernelQueue) unbind() {
	if q.bound {
		q.bound = q.configure(commandAttr(commandUnbind)) != nil
	}
}

// configure sends one configuration message and waits for its acknowledgement. It drops packets that arrive before the
// acknowledgement, so it must only be used before a worker reads the queue.
func (q *kernelQueue) configure(attrs ...attr) error {
	q.sequence++
	if err := unix.Sendto(q.fd, configMessage(q.number, q.sequence, attrs...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	var answers []byte
	for buffer := make([]byte, q.size); ; {
		n, _, err := unix.Recvfrom(q.fd, buffer, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("no answer from the kernel: %w", err)
		}
		for rest := buffer[:n]; ; {
			m, next, ok := nextMessage(rest)
			if !ok {
				break
			}
			rest = next
			var p Packet
			switch {
			case m.kind == unix.NLMSG_ERROR && m.sequence == q.sequence:
				if len(answers) > 0 {
					_ = q.send(answers)
				}
				if errno := m.failure(); errno != 0 {
					return errno
				}
				return nil
			case m.kind == messagePacket && parsePacket(m.body, &p):
				answers = appendVerdict(answers, q.number, Verdict{ID: p.ID, Drop: true})
			}
		}
	}
}

// Receive implements queue.
func (q *kernelQueue) Receive(into []Packet, pollTimeout time.Duration) (int, error) {
	n, err := q.read(unix.MSG_DONTWAIT)
	if n == 0 && err == nil && pollTimeout > 0 {
		n, err = q.wait(pollTimeout)
	}
	if n == 0 || err != nil {
		return 0, err
	}
	return q.take(into, n), nil
}

// read reads up to one batch of datagrams. It is no error if there are none.
func (q *kernelQueue) read(flags int) (int, error) {
	for {
		n, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, uintptr(q.fd), uintptr(unsafe.Pointer(&q.messages[0])),
			uintptr(len(q.messages)), uintptr(flags), 0, 0)
		switch errno {
		case 0:
			return int(n), nil
		case unix.EAGAIN:
			return 0, nil
		case unix.EINTR, unix.ENOBUFS:
			if flags&unix.MSG_DONTWAIT == 0 {
				return 0, nil // the caller checks whether it must stop
			}
		default:
			return 0, fmt.Errorf("read from queue %d: %w", q.number, errno)
		}
	}
}

// wait spins for as long as spinning was worthwhile recently, then sleeps.
func (q *kernelQueue) wait(pollTimeout time.Duration) (int, error) {
	for range q.spin {
		if n, err := q.read(unix.MSG_DONTWAIT); n > 0 || err != nil {
			q.spin = min(q.spin+q.spin/4+1, q.maxSpin)
			return n, err
		}
	}
	q.spin /= 2
	q.sleeps.Add(1)
	start := time.Now()
	n, err := q.sleep(pollTimeout)
	if n > 0 && q.maxSpin > 0 && time.Since(start) < q.quick {
		q.spin = min(max(2*q.spin, 8), q.maxSpin)
	}
	return n, err
}

func (q *kernelQueue) sleep(pollTimeout time.Duration) (int, error) {
	if pollTimeout >= idleTimeout {
		return q.read(unix.MSG_WAITFORONE)
	}
	q.ready[0] = unix.PollFd{Fd: int32(q.fd), Events: unix.POLLIN}
	q.limit = unix.NsecToTimespec(int64(pollTimeout))
	_, _, errno := unix.Syscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&q.ready[0])), 1, uintptr(unsafe.Pointer(&q.limit)), 0, 0, 0)
	if errno != 0 && errno != unix.EINTR {
		return 0, fmt.Errorf("wait for queue %d: %w", q.number, errno)
	}
	return q.read(unix.MSG_DONTWAIT)
}

// take converts n datagrams into packets. The kernel puts one message into each datagram, so there cannot be more packets
// than fit into into.
func (q *kernelQueue) take(into []Packet, n int) int {
	count := 0
	for i := range q.messages[:n] {
		m := &q.messages[i]
		if m.header.Flags&unix.MSG_TRUNC != 0 {
			q.truncated.Add(1)
		}
		count += q.parse(q.buffers[i*q.size:][:min(int(m.length), q.size)], into[count:])
	}
	return count
}

func (q *kernelQueue) parse(datagram []byte, into []Packet) int {
	count := 0
	for rest := datagram; len(rest) > 0; {
		m, next, ok := nextMessage(rest)
		if !ok {
			q.odd.Add(1)
			return count
		}
		rest = next
		switch {
		case m.kind == messagePacket && count < len(into) && parsePacket(m.body, &into[count]):
			count++
		case m.kind == unix.NLMSG_ERROR && m.failure() == 0: // the acknowledgement that Wake requested
		case m.kind == unix.NLMSG_ERROR:
			q.refused.Add(1)
		case m.kind == unix.NLMSG_NOOP:
		default:
			q.odd.Add(1)
		}
	}
	return count
}

// maxSend is the maximum number of bytes of verdicts in one write. It is well below the minimum send buffer.
const maxSend = MaxBatch * verdictMarkedLength

// maxSendTries bounds how often a write is tried while the kernel is short of memory.
const maxSendTries = 1000

// Answer implements queue.
func (q *kernelQueue) Answer(verdicts []Verdict) error {
	q.answers = q.answers[:0]
	for i := range verdicts {
		q.answers = appendVerdict(q.answers, q.number, verdicts[i])
		if len(q.answers) > maxSend-verdictMarkedLength {
			if err := q.send(q.answers); err != nil {
				return err
			}
			q.answers = q.answers[:0]
		}
	}
	if len(q.answers) == 0 {
		return nil
	}
	return q.send(q.answers)
}

// send writes messages to the kernel. The kernel processes them before the call returns, so packets leave during it.
func (q *kernelQueue) send(b []byte) error {
	for tries := 0; ; tries++ {
		_, _, errno := unix.Syscall6(unix.SYS_SENDTO, uintptr(q.fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), 0, 0, 0)
		switch errno {
		case 0:
			return nil
		case unix.EINTR, unix.EAGAIN, unix.ENOBUFS, unix.ENOMEM: // try again when memory is short, so that no packet stays without a verdict
			if tries < maxSendTries {
				continue
			}
		}
		return fmt.Errorf("answer queue %d: %w", q.number, errno)
	}
}

// Wake implements queue: it sends a message that changes nothing, and the reader wakes when the kernel acknowledges it.
func (q *kernelQueue) Wake() {
	b := configMessage(q.number, wakeSequence)
	_ = unix.Sendto(q.fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
}

// Close implements queue.
func (q *kernelQueue) Close() error {
	if q.closed {
		return nil
	}
	q.closed = true
	return unix.Close(q.fd) // this unbinds the queue and drops the packets that wait
}
