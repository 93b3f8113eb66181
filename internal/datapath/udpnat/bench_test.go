package udpnat_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/datapath/udpnat"
	"github.com/weir-lb/weir/internal/udpio"
)

// pump drives a NAT from clients that allocate nothing, before an echo that allocates nothing.
type pump struct {
	clients []*udpio.Conn
	out     []udpio.Message
	in      []udpio.Message
}

func newPump(t testing.TB, clients int, config udpnat.Config) (*fixture, *pump) {
	f := start(t, config, 1)
	echo := f.backends[0]
	_ = echo.conn.Close()
	group, err := udpio.Listen(udpio.Config{Addr: echo.addr, ReadBuffer: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = group.Close() })
	go func() {
		messages := udpio.NewMessages(64, 2048)
		for {
			n, err := group.Conn(0).ReadBatch(messages, udpio.Forever)
			if err != nil {
				return
			}
			group.Conn(0).WriteAll(messages[:n])
		}
	}()
	p := &pump{in: udpio.NewMessages(1, 2048), out: []udpio.Message{{Buf: make([]byte, 64), N: 64}}}
	for range clients {
		g, err := udpio.Listen(udpio.Config{Addr: netip.MustParseAddrPort("127.0.0.1:0"), Peer: f.vip, Batch: 1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = g.Close() })
		p.clients = append(p.clients, g.Conn(0))
	}
	return f, p
}

// round sends one datagram of each client and waits for all answers; it returns how many came.
func (p *pump) round(t testing.TB) int {
	for _, c := range p.clients {
		c.WriteAll(p.out)
	}
	got := 0
	for _, c := range p.clients {
		n, err := c.ReadBatch(p.in, 2*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		got += n
	}
	return got
}

func TestNoAllocations(t *testing.T) {
	for _, config := range []udpnat.Config{{}, {Reverse: true}, {DTLSFilter: false, Faults: udpnat.Faults{LossForward: 1e-9, Seed: 1}}} {
		_, p := newPump(t, 8, config)
		p.round(t)
		// Background work (the watch of backends) allocates a few times a second, which is much where rounds are slow. What
		// a datagram costs it costs each time.
		allocs := 1.0
		for try := 0; allocs != 0 && try < 10; try++ {
			got := 0
			allocs = min(allocs, testing.AllocsPerRun(200, func() { got += p.round(t) }))
			if got < 8*180 {
				t.Fatalf("only %d datagrams came back", got)
			}
		}
		if allocs != 0 {
			t.Errorf("%+v: an allocation or more for 8 datagrams there and back", config)
		}
	}
}

func BenchmarkForward(b *testing.B) {
	_, p := newPump(b, 64, udpnat.Config{Workers: 1})
	p.round(b)
	b.ReportAllocs()
	b.ResetTimer()
	for done := 0; done < b.N; {
		done += 2 * p.round(b) // one datagram each way
	}
}
