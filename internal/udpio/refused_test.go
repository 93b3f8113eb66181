package udpio_test

import (
	"bytes"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/udpio"
)

const (
	noCheck6Send    = 101 // UDP_NO_CHECK6_TX of linux/udp.h
	noCheck6Receive = 102 // UDP_NO_CHECK6_RX
)

// refuseSegments has the kernel refuse segments on a socket, or take them again: it does not split datagrams that are sent without
// a checksum.
func refuseSegments(t *testing.T, c *udpio.Conn, refuse int) {
	t.Helper()
	level, name := unix.SOL_SOCKET, unix.SO_NO_CHECK
	if c.LocalAddr().Addr().Is6() {
		level, name = unix.SOL_UDP, noCheck6Send
	}
	if err := unix.SetsockoptInt(c.FD(), level, name, refuse); err != nil {
		t.Fatal(err)
	}
}

// sendRun writes ten datagrams of one length, which all arrive as they are, and returns what it added to the counters.
func sendRun(t *testing.T, from, to *udpio.Conn, size int) (segmented, unsegmented uint64) {
	t.Helper()
	before := from.Stats()
	var run []udpio.Message
	for i := range 10 {
		run = append(run, message(to.LocalAddr(), bytes.Repeat([]byte{byte(i)}, size)))
	}
	if n := from.WriteAll(run); n != len(run) {
		t.Fatalf("%d of %d written", n, len(run))
	}
	for i, m := range readAll(t, to, len(run), 2*size) {
		if !bytes.Equal(m.Buf[:m.N], run[i].Buf) {
			t.Fatalf("datagram %d arrived as % x", i, m.Buf[:m.N])
		}
	}
	after := from.Stats()
	if after.SendErrors != before.SendErrors {
		t.Fatalf("%d errors", after.SendErrors-before.SendErrors)
	}
	return after.Segmented - before.Segmented, after.Unsegmented - before.Unsegmented
}

// Where the kernel refuses segments, datagrams leave one by one, which is counted once, and other destinations get segments still.
func TestRefusedSegmentsOfOneDestination(t *testing.T) {
	for _, addr := range []netip.AddrPort{loopback4, netip.MustParseAddrPort("[::1]:0")} {
		t.Run(addr.String(), func(t *testing.T) {
			from := listen(t, udpio.Config{Addr: addr}).Conn(0)
			refused, other := listen(t, udpio.Config{Addr: addr}).Conn(0), listen(t, udpio.Config{Addr: addr}).Conn(0)
			if addr.Addr().Is6() {
				if err := unix.SetsockoptInt(refused.FD(), unix.SOL_UDP, noCheck6Receive, 1); err != nil {
					t.Fatal(err)
				}
			}
			for i, step := range []struct {
				refuse, size           int
				to                     *udpio.Conn
				segmented, unsegmented uint64
			}{
				{0, 100, refused, 1, 0},
				{1, 100, refused, 0, 1},
				{1, 100, refused, 0, 0}, // not tried again
				{0, 101, refused, 0, 0},
				{0, 100, other, 1, 0},
				{0, 60, refused, 1, 0}, // shorter ones may succeed
			} {
				refuseSegments(t, from, step.refuse)
				if s, u := sendRun(t, from, step.to, step.size); s != step.segmented || u != step.unsegmented {
					t.Errorf("step %d: %d segmented sends, %d refused, want %+v", i, s, u, step)
				}
			}
		})
	}
}

// More destinations than are remembered limit all of them, so that the kernel is not asked again and again.
func TestRefusedSegmentsOfManyDestinations(t *testing.T) {
	from := listen(t, udpio.Config{Addr: loopback4}).Conn(0)
	refuseSegments(t, from, 1)
	var to []*udpio.Conn
	for range 12 {
		to = append(to, listen(t, udpio.Config{Addr: loopback4}).Conn(0))
	}
	for range 3 {
		for _, c := range to {
			if s, _ := sendRun(t, from, c, 100); s != 0 {
				t.Fatal("segments left")
			}
		}
	}
	if n := from.Stats().Unsegmented; n != 9 {
		t.Errorf("%d runs refused, want 9", n)
	}
}
