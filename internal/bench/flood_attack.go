package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/testbed/pace"
)

// Attack is a flood from one interface, in whole IPv4 frames whose sources need not be ours.
type Attack struct {
	Kind      string
	Interface string
	Gateway   string // MAC of the next hop
	To        netip.AddrPort
	Sources   netip.Prefix // spoofed
	Addresses int          // so many, spread over Sources; 0: all
	CID       []byte       // of forged records
	// Certificates: ClientHellos offer a suite with certificates instead of one with a pre-shared key.
	Certificates bool
	Flows        int     // of known flows: how many
	Rate         float64 // frames a second; 0: as many as can be
	Duration     time.Duration
	Frames       uint64        // end earlier, after so many; 0: do not
	Debt         time.Duration // how much of what it is late with the sender makes up for; 0: maximumDebt
	GatewayMAC   [6]byte
	SourceMAC    [6]byte
}

// Attacked is what was sent.
type Attacked struct {
	Offered float64       `json:"offered_per_s"` // 0: as many as can be
	Sent    uint64        `json:"sent"`
	Elapsed time.Duration `json:"elapsed_ns"`
	Done    uint64        `json:"done"`           // cookies returned, allocations made
	Longest time.Duration `json:"longest_gap_ns"` // in which nothing was sent though it was due: this program did not run
}

// answers says whether the attack replies to what the target sends.
func attackAnswers(kind string) bool { return kind == attackHalfOpen || kind == attackSetUp }

// Reached is frames a second; half-open handshakes count when their cookie was returned, set-ups when they succeeded.
func (a *Attacked) Reached(kind string) float64 {
	sent := a.Sent
	if attackAnswers(kind) {
		sent = a.Done
	}
	return float64(sent) / max(a.Elapsed.Seconds(), 1e-9)
}

// Validate says what cannot be meant.
func (a *Attack) Validate() (err error) {
	if a.GatewayMAC, err = parseMAC(a.Gateway); err != nil {
		return err
	}
	switch {
	case !slices.Contains(attackKinds(), a.Kind):
		return fmt.Errorf("no kind %q; there are %v", a.Kind, attackKinds())
	case !a.To.Addr().Is4() || !a.Sources.IsValid() || !a.Sources.Addr().Is4() || a.Sources.Bits() > 30 || a.Addresses < 0 || a.Addresses > 1<<(32-a.Sources.Bits())/2:
		return errors.New("target and sources are IPv4, the sources a prefix of at most 30 bits with room for them")
	case a.Duration <= 0 || a.Duration > time.Hour:
		return fmt.Errorf("%v: want up to an hour", a.Duration)
	case a.Kind == attackForged && len(a.CID) == 0:
		return errors.New("forged records need a connection id")
	case a.Kind == attackKnown && (a.Flows < 1 || a.Flows > maximumKnown):
		return fmt.Errorf("%d known flows: want 1 to %d", a.Flows, maximumKnown)
	case a.Debt < 0 || a.Debt > maximumDebt:
		return fmt.Errorf("a debt of %v: want at most %v", a.Debt, maximumDebt)
	}
	return nil
}

// maximumDebt is how far the sender may be behind its intended times before it gives frames up: they count as offered, not as sent.
const maximumDebt = 100 * time.Millisecond

// Run sends. The frames are due at their intended times: a sender that was held up catches up, for at most a tenth of a second.
func (a *Attack) Run(ctx context.Context) (Attacked, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	result := Attacked{Offered: a.Rate}
	fd, answers, err := a.open()
	if err != nil {
		return result, err
	}
	defer unix.Close(fd)
	if answers >= 0 {
		defer unix.Close(answers)
	}
	f := &frames{attack: a, random: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), seed: rand.Uint64(), replied: map[netip.AddrPort]bool{}} //nolint:gosec // nothing secret
	batch, buffers := newBatch()
	start := time.Now()
	last := start
	pacer := pace.Pacer{Rate: a.Rate, Debt: cmp.Or(a.Debt, maximumDebt)}
	for ctx.Err() == nil {
		now := time.Now()
		if result.Elapsed = now.Sub(start); result.Elapsed >= a.Duration || a.Frames > 0 && result.Sent >= a.Frames {
			return result, nil
		}
		n, _ := pacer.Take(result.Elapsed, 1, floodBatch)
		result.Longest = max(result.Longest, now.Sub(last))
		last = now
		for i := range n {
			fill(&batch[i], f.next(buffers[i]))
		}
		if n > 0 {
			sent, err := sendmmsg(fd, batch[:n])
			if err != nil {
				return result, err
			}
			result.Sent += uint64(sent)
		}
		if answers >= 0 {
			done, err := f.replyAll(fd, answers, batch, buffers)
			if err != nil {
				return result, err
			}
			result.Done += done
		}
		if n == 0 {
			time.Sleep(500 * time.Microsecond)
		}
	}
	return result, ctx.Err()
}

// open opens the sockets that frames are sent from and that answers come to; -1: answers are not read.
func (a *Attack) open() (fd, answers int, err error) {
	device, err := net.InterfaceByName(a.Interface)
	if err != nil {
		return -1, -1, err
	}
	copy(a.SourceMAC[:], device.HardwareAddr)
	if fd, err = sendingSocket(device.Index); err != nil {
		return -1, -1, err
	}
	if !attackAnswers(a.Kind) {
		return fd, -1, nil
	}
	if answers, err = packetSocket(device.Index, unix.ETH_P_IP); err != nil {
		unix.Close(fd)
		return -1, -1, err
	}
	_ = unix.SetsockoptInt(answers, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 32<<20)
	return fd, answers, nil
}

// sendingSocket opens a packet socket of an interface that sends past the queueing discipline and receives nothing.
func sendingSocket(index int) (fd int, err error) {
	if fd, err = packetSocket(index, 0); err != nil {
		return -1, err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("packet socket: %w", err)
	}
	return fd, nil
}

// packetSocket opens one on an interface, for frames of a protocol; 0: it receives none.
func packetSocket(index, protocol int) (int, error) {
	network := protocol<<8&0xff00 | protocol>>8
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, network)
	if err != nil {
		return -1, fmt.Errorf("open a packet socket: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: index, Protocol: uint16(network)}); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("packet socket on interface %d: %w", index, err)
	}
	return fd, nil
}

func newBatch() ([]mmsghdr, [][]byte) {
	batch, buffers := make([]mmsghdr, floodBatch), make([][]byte, floodBatch)
	for i := range batch {
		buffers[i] = make([]byte, attackFrameMax)
		batch[i].header = unix.Msghdr{Iov: &unix.Iovec{Base: &buffers[i][0]}, Iovlen: 1}
	}
	return batch, buffers
}

// fill makes a frame the next one of a batch. The frame lies in the batch's buffer.
func fill(m *mmsghdr, frame []byte) {
	m.header.Iov.Base = &frame[0]
	m.header.Iov.SetLen(len(frame))
}

// replyAll replies to everything that has come.
func (f *frames) replyAll(fd, answers int, batch []mmsghdr, buffers [][]byte) (done uint64, err error) {
	var frame [attackFrameMax]byte
	for n := 0; ; {
		length, _, err := unix.Recvfrom(answers, frame[:], 0)
		if err == nil {
			to, payload := datagramOf(frame[:length])
			reply, success := f.reply(to, payload)
			if success {
				done++
			}
			if reply != nil {
				fill(&batch[n], f.udp(buffers[n], to, reply))
				n++
			}
			if n < floodBatch {
				continue
			}
		}
		if n > 0 {
			if _, failed := sendmmsg(fd, batch[:n]); failed != nil {
				return done, failed
			}
			n = 0
		}
		if err != nil { // nothing more has come
			return done, nil
		}
	}
}
