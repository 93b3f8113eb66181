package udpnat_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/datapath/udpnat"
)

// sendNumbered sends n datagrams and waits until the NAT took all of them.
func (f *fixture) sendNumbered(c *client, n int) {
	f.t.Helper()
	before := f.counters().Received
	for i := range n {
		c.send([]byte(text(i)))
		if i%20 == 19 { // no more than the buffers hold
			f.eventually("received", func() bool { return f.counters().Received == before+uint64(i+1) })
		}
	}
	f.eventually("received", func() bool { return f.counters().Received == before+uint64(n) })
}

func TestLossForwardIsSeeded(t *testing.T) {
	var runs [2][]string
	for run := range runs {
		f := start(t, udpnat.Config{Workers: 1, Faults: udpnat.Faults{LossForward: 30, Seed: 7}}, 1)
		c := f.client()
		const n = 60
		f.sendNumbered(c, n)
		s := f.counters()
		if s.LostForward < n/10 || s.LostForward > n/2 || s.LostForward+s.Forwarded != n {
			t.Fatalf("lost %d, forwarded %d of %d at 30%%", s.LostForward, s.Forwarded, n)
		}
		b := f.backends[0]
		f.eventually("the rest arrives", func() bool { return b.count() == int(s.Forwarded) })
		runs[run] = b.payloads()
		if r := f.datapath.Stats().Reasons["fault"]; r != s.LostForward {
			t.Fatalf("reason fault counted %d times, want %d", r, s.LostForward)
		}
	}
	if !slices.Equal(runs[0], runs[1]) {
		t.Fatal("one seed, two fates")
	}
}

func TestLossBackward(t *testing.T) {
	f := start(t, udpnat.Config{Workers: 1, Faults: udpnat.Faults{LossBackward: 100}}, 1)
	c := f.client()
	f.sendNumbered(c, 10)
	f.eventually("all replies are lost", func() bool { return f.counters().LostBackward == 10 })
	c.nothing()
	f.do("faults loss-backward=0")
	c.exchange("now")
	if f.backends[0].count() != 11 {
		t.Fatal("backward loss dropped forward")
	}
}

func TestSizeLimit(t *testing.T) {
	f := start(t, udpnat.Config{Workers: 1, Faults: udpnat.Faults{SizeLimit: 100, SizePercent: 100}}, 1)
	c := f.client()
	c.send(make([]byte, 101))
	c.send(make([]byte, 65507))
	f.eventually("long ones are dropped", func() bool { return f.counters().TooLong == 2 })
	c.exchange(strings.Repeat("x", 100))
	f.do("faults size-percent=0")
	c.exchange(strings.Repeat("x", 101))
	f.do("faults size-percent=50 seed=3")
	before := f.counters().TooLong
	for range 60 {
		c.send(make([]byte, 200))
	}
	f.eventually("half", func() bool { return f.counters().Received == 64 })
	if dropped := f.counters().TooLong - before; dropped < 15 || dropped > 45 {
		t.Fatalf("dropped %d of 60 at 50%%", dropped)
	}
}

func TestTruncation(t *testing.T) {
	f := start(t, udpnat.Config{Workers: 1, Faults: udpnat.Faults{TruncateLimit: 10, TruncatePercent: 100}}, 1)
	c := f.client()
	c.send([]byte("0123456789abcdef"))
	got, err := c.receive()
	if err != nil || string(got[1:]) != "0123456789" {
		t.Fatalf("got %q, %v", got, err)
	}
	c.exchange("0123456789")
	if s := f.counters(); s.Truncated != 1 {
		t.Fatalf("counters %+v", s)
	}
}

func TestReordering(t *testing.T) {
	f := start(t, udpnat.Config{Workers: 1, Faults: udpnat.Faults{ReorderPercent: 100, ReorderDelay: time.Minute / 2}}, 1)
	c := f.client()
	f.sendNumbered(c, 3)
	f.eventually("held", func() bool { return f.counters().Reordered == 3 })
	if f.backends[0].count() != 0 {
		t.Fatal("held datagrams arrived")
	}
	f.do("faults reorder=0") // what is held stays held
	c.exchange("overtakes")
	f.advance(time.Minute / 2)
	f.eventually("late ones arrive", func() bool { return f.backends[0].count() == 4 })
	got := f.backends[0].payloads()
	if got[0] != "overtakes" || !slices.Equal(got[1:], []string{text(0), text(1), text(2)}) {
		t.Fatalf("order %q", got)
	}
}

func TestReorderingIsBounded(t *testing.T) {
	f := start(t, udpnat.Config{Workers: 1, Faults: udpnat.Faults{ReorderPercent: 100, ReorderDelay: time.Minute}}, 1)
	c := f.client()
	big := bytes.Repeat([]byte{1}, 60000)
	for i := range 300 { // 18 MB; 16 MiB may be held
		c.send(big)
		if i%5 == 4 {
			f.eventually("received", func() bool { return f.counters().Received == uint64(i+1) })
		}
	}
	s := f.counters()
	if s.Reordered+s.HeldFull != 300 || s.HeldFull == 0 || s.Reordered*60000 > 16<<20 {
		t.Fatalf("held %d, passed %d", s.Reordered, s.HeldFull)
	}
	f.eventually("what finds no room passes in order", func() bool { return f.counters().Forwarded == s.HeldFull })
}

func TestDTLSFilter(t *testing.T) {
	f := start(t, udpnat.Config{Workers: 1, DTLSFilter: true}, 1)
	c := f.client()
	record := func(kind, major, minor byte, length int) []byte {
		b := make([]byte, length)
		copy(b, []byte{kind, major, minor})
		return b
	}
	var dropped uint64
	for _, r := range [][]byte{
		{},
		record(22, 0xfe, 0xfd, 13), record(24, 0xfe, 0xfd, 14), record(19, 0xfe, 0xfd, 14), record(26, 0xfe, 0xfd, 14),
		record(23, 0xfe, 0xff, 14), record(22, 3, 3, 14), record(22, 0xfe, 0xfe, 14), []byte("GET / HTTP/1.1\r\n"),
	} {
		c.send(r)
		dropped++
	}
	f.eventually("all are filtered", func() bool { return f.counters().Filtered == dropped })
	for _, kind := range []byte{20, 21, 22, 23, 25} {
		c.exchange(string(record(kind, 0xfe, 0xfd, 14)))
	}
	c.exchange(string(record(22, 0xfe, 0xff, 300)))
	if f.backends[0].count() != 6 {
		t.Fatalf("%d records passed", f.backends[0].count())
	}
	if r := f.datapath.Stats().Reasons["not_dtls"]; r != dropped {
		t.Fatalf("reason not_dtls counted %d times", r)
	}
}

func TestFaultsCommand(t *testing.T) {
	f := start(t, udpnat.Config{Workers: 1}, 1)
	want := "loss-forward=1.5 loss-backward=2 size-limit=100 size-percent=100 truncate-limit=9 truncate-percent=50 reorder=3 reorder-delay=20ms reorder-jitter=10ms seed=4"
	if got := f.do("faults " + want); got != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
	if got := f.do("faults"); got != want {
		t.Fatalf("kept %s", got)
	}
	for _, bad := range []string{"loss-forward=101", "loss-forward=NaN", "loss-forward=x", "loss-forward", "nonsense=1", "reorder-delay=5", "size-limit=-1", "seed=-1"} {
		if got, err := f.console.Execute(t.Context(), "faults "+bad); err == nil {
			t.Errorf("%s: took it: %s", bad, got)
		}
	}
	if _, err := f.console.Execute(t.Context(), "faults reorder-delay=5"); err == nil || !strings.Contains(err.Error(), "such as 50ms") {
		t.Errorf("a delay without a unit: %v", err)
	}
	if got := f.do("faults"); got != want {
		t.Fatalf("a refused change left %s", got)
	}
}
