package load

import (
	"math"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/pion/stun/v4"

	"github.com/weir-lb/weir/internal/turn/requests"
)

func TestTrackerCountsEachOnce(t *testing.T) {
	for name, c := range map[string]struct {
		sequences                       []uint64
		received, reordered, duplicates uint64
	}{
		"in order":         {[]uint64{0, 1, 2, 3}, 4, 0, 0},
		"a hole":           {[]uint64{0, 5, 6}, 3, 0, 0},
		"a hole filled":    {[]uint64{0, 2, 1, 3}, 4, 1, 0},
		"doubles":          {[]uint64{0, 0, 1, 0, 1}, 2, 0, 3},
		"late and double":  {[]uint64{0, 3, 1, 1, 2}, 4, 2, 1},
		"far ahead":        {[]uint64{0, 3 * windowBits, 3*windowBits - 1, 3*windowBits - 1}, 3, 1, 1},
		"window's edge":    {[]uint64{0, windowBits - 1, 0}, 2, 0, 1},
		"below the window": {[]uint64{0, windowBits, 0}, 3, 1, 0}, // taken for late
		"reused bits":      {[]uint64{1, windowBits, windowBits + 1, windowBits + 1}, 3, 0, 1},
	} {
		var tr tracker
		for _, s := range c.sequences {
			tr.arrive(s, 0, 1, 10)
		}
		if tr.received != c.received || tr.reordered != c.reordered || tr.duplicates != c.duplicates || tr.bytes != 10*c.received {
			t.Errorf("%s: %d received, %d reordered, %d duplicates, %d bytes; want %+v", name, tr.received, tr.reordered, tr.duplicates, tr.bytes, c)
		}
	}
}

func TestTrackerAgainstDefinitions(t *testing.T) {
	sent := []int64{0, 1000, 2000, 3000, 4000}
	arrived := []int64{100, 1300, 2100, 3700, 4100} // latencies 100 300 100 700 100
	tr := tracker{begin: 0}
	for i := range sent {
		tr.arrive(uint64(i), sent[i], arrived[i], 1)
	}
	jitter := 0.0
	for _, d := range []float64{200, 200, 600, 600} {
		jitter += (d - jitter) / 16 // RFC 3550 section 6.4.1
	}
	c := tr.connection(7, 1, 5000)
	if c.Lost != 2 || c.Refused != 1 || c.Elapsed != 5000 || c.LongestGap != 1600 || c.Jitter != time.Duration(jitter) {
		t.Errorf("%+v, want jitter %v", c, jitter)
	}
	stdev := time.Duration(math.Sqrt((160*160*3 + 40*40 + 440*440) / 5.0))
	if want := (Moments{Count: 5, Mean: 260, Min: 100, Max: 700, Stdev: stdev}); c.Latency != want {
		t.Errorf("moments %+v, want %+v", c.Latency, want)
	}
}

// The sum is what one tracker of all the datagrams would say.
func TestSumIsThatOfTheWhole(t *testing.T) {
	parts := [][]int64{{100, 300, 100}, {700}, nil, {50, 60, 70, 80}}
	var list []Connection
	var all tracker
	for _, latencies := range parts {
		var one tracker
		for i, l := range latencies {
			one.arrive(uint64(i), 0, l, 5)
			all.arrive(uint64(all.received), 0, l, 5)
		}
		list = append(list, one.connection(uint64(len(latencies)+1), 0, 1000))
	}
	got, want := sumOf(list), all.connection(12, 0, 1000)
	close := func(a, b time.Duration) bool { return max(a-b, b-a) <= 1 } // rounded to ns before
	if got.Sent != want.Sent || got.Received != want.Received || got.Lost != 4 || got.Bytes != want.Bytes || got.Latency.Count != want.Latency.Count ||
		got.Latency.Min != want.Latency.Min || got.Latency.Max != want.Latency.Max || !close(got.Latency.Mean, want.Latency.Mean) || !close(got.Latency.Stdev, want.Latency.Stdev) {
		t.Errorf("sum  %+v\nwant %+v", got, want)
	}
}

func TestDatagramRoundTrip(t *testing.T) {
	for _, size := range []int{HeaderSize, HeaderSize + trailer - 1, HeaderSize + trailer, 1200} {
		b := make([]byte, size)
		want := header{conn: 7, flags: flagDown, run: 3, sequence: 1 << 40, sent: 123456789}
		want.put(b)
		got, ok, whole := parse(b)
		if !ok || !whole || got != want {
			t.Errorf("%d bytes: %+v %v %v", size, got, ok, whole)
		}
		if size >= HeaderSize+trailer {
			b[size-1] ^= 1
			if _, ok, whole := parse(b); !ok || whole {
				t.Errorf("%d bytes: a damaged end goes unseen", size)
			}
		}
	}
	frame := slices.Concat([]byte{0x40, 0, 0, 3}, []byte("abc"), []byte{0})
	if data, ok := channelData(frame); !ok || string(data) != "abc" {
		t.Errorf("%q %v", data, ok)
	}
	for _, bad := range [][]byte{nil, {0x40, 0, 0}, {0x40, 1, 0, 0}, {0x40, 0, 0, 4, 1, 2, 3}} {
		if _, ok := channelData(bad); ok {
			t.Errorf("% x was taken for ChannelData of ours", bad)
		}
	}
}

func FuzzDatagram(f *testing.F) {
	b := make([]byte, 64)
	(&header{conn: 1, sequence: 2}).put(b)
	f.Add(b)
	f.Add(append([]byte{0x40, 0, 0, 64}, b...))
	f.Fuzz(func(t *testing.T, b []byte) {
		if data, ok := channelData(b); ok && len(data) > len(b)-channelHead {
			t.Fatal("more data than there is")
		}
		h, ok, whole := parse(b)
		if ok && whole {
			again := slices.Clone(b)
			h.put(again)
			if got, _, _ := parse(again); got != h {
				t.Fatalf("%+v became %+v", h, got)
			}
		}
	})
}

func TestCountingAllocatesNothing(t *testing.T) {
	l := &Load{config: Config{Size: 64}}
	r := newRun(1, Phase{}, 1, 0)
	messages := l.batch(8)
	var sequence uint64
	if n := testing.AllocsPerRun(100, func() {
		l.fill(messages, header{run: 1, sequence: sequence}, 64, true)
		sequence += 8
		for i := range messages {
			h, _, whole := parse(messages[i].Buf[:64])
			r.count(&r.up[0], r.upLatency, h, whole, 5, 64)
		}
	}); n != 0 {
		t.Errorf("%v allocations for a batch", n)
	}
	if r.up[0].received != sequence {
		t.Errorf("%d of %d counted", r.up[0].received, sequence)
	}
}

// A server may answer anything: a client takes it or leaves it.
func FuzzAnswer(f *testing.F) {
	config, err := Config{Server: netip.MustParseAddrPort("127.0.0.1:9"), User: "u", Password: "p"}.withDefaults()
	if err != nil {
		f.Fatal(err)
	}
	c, err := openClient(&config, 0)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = c.link.close() })
	id := [stun.TransactionIDSize]byte{1, 2, 3}
	for _, setters := range [][]stun.Setter{
		{stun.NewType(stun.MethodAllocate, stun.ClassErrorResponse), stun.CodeUnauthorized, stun.NewRealm("r"), stun.NewNonce("n")},
		{stun.NewType(stun.MethodAllocate, stun.ClassErrorResponse), stun.CodeAllocQuotaReached},
		{stun.NewType(stun.MethodAllocate, stun.ClassErrorResponse)},
		{stun.NewType(stun.MethodAllocate, stun.ClassSuccessResponse), &stun.XORMappedAddress{IP: net.IPv4(1, 2, 3, 4), Port: 5}},
	} {
		f.Add(stun.MustBuild(append([]stun.Setter{stun.NewTransactionIDSetter(id)}, setters...)...).Raw, true)
	}
	f.Add([]byte{}, false)
	f.Fuzz(func(t *testing.T, b []byte, known bool) {
		now := time.Unix(1e9, 0)
		c.auth, c.relay = requests.Auth{}, netip.AddrPort{}
		c.auth.SetUser("u", "p")
		if known && !c.auth.Challenge(stun.MustBuild(stun.NewRealm("r"), stun.NewNonce("n"))) {
			t.Fatal("the challenge was not taken")
		}
		if err := c.begin(now, allocate, bind); err != nil {
			t.Fatal(err)
		}
		c.request.TransactionID = id
		if c.answer(b, now) != nil && c.step != idle {
			t.Fatal("a request that failed is still under way")
		}
		if known && c.relay.IsValid() && c.step == bind {
			t.Fatal("an unsigned answer was taken")
		}
	})
}
