package engine

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/udpio"
)

// linkSocket is a socket that sends frames of a worker, without segments if the kernel shall refuse them; or that receives datagrams
// one by one, as Californium's do.
func linkSocket(t *testing.T, host string, refuse bool) *udpio.Conn {
	t.Helper()
	group, err := udpio.Listen(udpio.Config{Addr: netip.AddrPortFrom(netip.MustParseAddr(host), 0), Batch: 64})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = group.Close() })
	conn := group.Conn(0)
	set := func(level, name int) {
		if err := unix.SetsockoptInt(conn.FD(), level, name, 1); err != nil {
			t.Fatal(err)
		}
	}
	v6 := conn.LocalAddr().Addr().Is6()
	if v6 {
		set(unix.SOL_UDP, 102) // UDP_NO_CHECK6_RX of linux/udp.h
	}
	switch { // the kernel does not split datagrams that are sent without a checksum
	case refuse && v6:
		set(unix.SOL_UDP, 101) // UDP_NO_CHECK6_TX
	case refuse:
		set(unix.SOL_SOCKET, unix.SO_NO_CHECK)
	}
	return conn
}

// Each frame is one datagram for a node that knows nothing of segments, with the bytes that the cluster wrote: of mixed lengths, for
// several nodes, on either family, and where the kernel refuses segments. Those of one length keep their order.
func TestEachFrameIsOneDatagram(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "::1"} {
		for _, refuse := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/refused=%v", host, refuse), func(t *testing.T) {
				x, link := newWire(t, nil), linkSocket(t, host, refuse)
				x.w.out.linkOut = func(m []udpio.Message) {
					if n := link.WriteAll(m); n != len(m) {
						t.Errorf("%d of %d frames left", n, len(m))
					}
				}
				nodes := [2]*udpio.Conn{linkSocket(t, host, false), linkSocket(t, host, false)}
				var want [2][][]byte
				for i := range 150 { // more than there are buffers
					n := []int{80, 80, 117, 80, 52, 1200}[i%6]
					b := x.w.LinkBuffer()
					copy(b, bytes.Repeat([]byte{byte(i)}, n))
					node := i / 3 % 2
					want[node] = append(want[node], bytes.Clone(b[:n]))
					x.w.LinkSend(n, nodes[node].LocalAddr())
				}
				x.w.out.flush()
				for i, node := range nodes {
					compareFrames(t, node, want[i])
				}
				if s := link.Stats(); s.Sent != 150 || s.SendErrors != 0 || (s.Segmented > 0) == refuse || (s.Unsegmented > 0) != refuse {
					t.Errorf("%+v", s)
				}
			})
		}
	}
}

// compareFrames reads as many datagrams as there are frames, and expects those of each length in their order.
func compareFrames(t *testing.T, node *udpio.Conn, want [][]byte) {
	t.Helper()
	wanted, got := map[int][][]byte{}, map[int][][]byte{}
	m := udpio.NewMessages(1, 65536)
	for _, frame := range want {
		wanted[len(frame)] = append(wanted[len(frame)], frame)
		if n, err := node.ReadBatch(m, 20*time.Second); n != 1 || err != nil {
			t.Fatalf("%d datagrams, %v", n, err)
		}
		got[m[0].N] = append(got[m[0].N], bytes.Clone(m[0].Buf[:m[0].N]))
	}
	for n, frames := range wanted {
		if len(got[n]) != len(frames) {
			t.Fatalf("%d datagrams of %d bytes, want %d", len(got[n]), n, len(frames))
		}
		for i, frame := range frames {
			if !bytes.Equal(got[n][i], frame) {
				t.Fatalf("datagram %d of %d bytes is another one", i, n)
			}
		}
	}
}

// Frames of different lengths share a send, too: the first shorter one ends it.
func TestFramesOfTwoLengthsLeaveTogether(t *testing.T) {
	x, link := newWire(t, nil), linkSocket(t, "127.0.0.1", false)
	x.w.out.linkOut = func(m []udpio.Message) { link.WriteAll(m) }
	to := linkSocket(t, "127.0.0.1", false).LocalAddr()
	for _, test := range []struct {
		lengths   []int
		segmented uint64
	}{
		{[]int{80}, 0},
		{[]int{80, 120}, 1},
		{[]int{60, 80, 120, 70}, 2},
		{[]int{80, 120, 80, 120, 80}, 2},
	} {
		before := link.Stats()
		for _, n := range test.lengths {
			x.w.LinkBuffer()
			x.w.LinkSend(n, to)
		}
		x.w.out.flush()
		if n := link.Stats().Segmented - before.Segmented; n != test.segmented {
			t.Errorf("lengths %v: %d sends of several frames, want %d", test.lengths, n, test.segmented)
		}
	}
}
