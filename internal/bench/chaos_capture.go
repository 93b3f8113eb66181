package bench

import (
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/testbed/netlab"
)

// capture hands every datagram that comes in at the interfaces of a namespace to a function, on a goroutine of its own. What a host sends, comes in
// at the other end of the link.
type capture struct {
	fd    int
	ended chan struct{}
	end   atomic.Bool
	err   error
}

// captureBuffer holds what comes while this process is not scheduled.
const captureBuffer = 64 << 20

// startCapture begins. take gets the addresses and the payload of each UDP datagram over IPv4, which it must not keep.
func startCapture(host *netlab.Host, take func(from, to netip.AddrPort, payload []byte)) (*capture, error) {
	c := &capture{ended: make(chan struct{})}
	err := host.Do(func() (err error) {
		const all = unix.ETH_P_ALL
		if c.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, all<<8&0xff00|all>>8); err != nil {
			return fmt.Errorf("packet socket: %w", err)
		}
		return errors.Join(
			unix.SetsockoptInt(c.fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
			unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, captureBuffer),
			unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000}),
		)
	})
	if err != nil {
		return nil, fmt.Errorf("capture in %s: %w", host.Name(), err)
	}
	go func() {
		defer close(c.ended)
		c.err = c.run(take)
	}()
	return c, nil
}

func (c *capture) run(take func(from, to netip.AddrPort, payload []byte)) error {
	buffer := make([]byte, 1<<16)
	for {
		n, _, err := unix.Recvfrom(c.fd, buffer, 0)
		switch {
		case errors.Is(err, unix.EAGAIN) && c.end.Load():
			return nil
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR), errors.Is(err, unix.ENETDOWN):
			continue
		case err != nil:
			return fmt.Errorf("capture: %w", err)
		}
		if from, to, payload, ok := udpOf(buffer[:n]); ok {
			take(from, to, payload)
		}
	}
}

// udpOf reads a whole UDP datagram over IPv4.
func udpOf(b []byte) (from, to netip.AddrPort, payload []byte, ok bool) {
	if len(b) < 28 || b[0]>>4 != 4 || b[9] != unix.IPPROTO_UDP {
		return from, to, nil, false
	}
	header, length := int(b[0]&15)*4, int(b[2])<<8|int(b[3])
	if length == 0 || length > len(b) { // longer than 64 kB, by offload
		length = len(b)
	}
	if fragment := int(b[6]&0x3f)<<8 | int(b[7]); fragment != 0 || length < header+8 {
		return from, to, nil, false
	}
	u := b[header:length]
	from = netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[12:16])), uint16(u[0])<<8|uint16(u[1]))
	to = netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[16:20])), uint16(u[2])<<8|uint16(u[3]))
	return from, to, u[8:], true
}

// stop ends the capture when everything that has come is read, and returns how many packets found no room.
func (c *capture) stop() (dropped uint64, err error) {
	c.end.Store(true)
	<-c.ended
	statistics, err := unix.GetsockoptTpacketStats(c.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err == nil {
		dropped = uint64(statistics.Drops)
	}
	return dropped, errors.Join(c.err, err, unix.Close(c.fd))
}
