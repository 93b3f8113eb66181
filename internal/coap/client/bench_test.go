package client

import (
	"context"
	"encoding/json"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
)

// Every client gets its share answered, over plain UDP and over another implementation's DTLS, with a socket each and shared.
func TestBench(t *testing.T) {
	for _, test := range []struct {
		name   string
		secure bool
		change func(*BenchConfig)
	}{
		{"plain", false, nil},
		{"plain shared", false, func(c *BenchConfig) { c.Sockets = SocketsShared }},
		{"plain separate", false, nil},
		{"DTLS", true, nil},
		{"DTLS with own connection id", true, func(c *BenchConfig) { c.CIDLength = 4 }},
		{"DTLS without connection ids", true, func(c *BenchConfig) { c.NoCID = true }},
		{"DTLS one worker", true, func(c *BenchConfig) { c.Workers = 1; c.Burst = 1 }},
		{"NON", false, func(c *BenchConfig) { c.NON = true }},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := newPeer(t, test.secure)
			p.separate.Store(strings.Contains(test.name, "separate"))
			cfg := BenchConfig{URI: p.uri, Clients: 20, Requests: 10, NoStop: true}
			if test.change != nil {
				test.change(&cfg)
			}
			snapshots, last := 0, Snapshot{}
			r, err := Bench(t.Context(), cfg, func(s Snapshot) { snapshots++; last = s })
			if err != nil {
				t.Fatal(err)
			}
			if r.Stats.Requests != 200 || r.Stats.Lost != 0 || r.Stats.Rehandshakes != 0 || r.RTT.Count() != 200 || snapshots < 2 {
				t.Fatalf("%+v, %d round trips, %d snapshots", r.Stats, r.RTT.Count(), snapshots)
			}
			if n := len(r.Samples); n == 0 || r.Samples[n-1].At > r.Elapsed || r.Samples[0].P50 <= 0 || r.Samples[0].Max < r.Samples[0].P99 {
				t.Errorf("samples %+v of %v", r.Samples, r.Elapsed)
			}
			if last.Interval.Requests > 0 && last.P50 == 0 {
				t.Errorf("the last snapshot has answers and no latency: %+v", last)
			}
			if len(r.Groups) != 1 || r.Groups[0] != (Group{Clients: 20, From: 10, To: 10}) {
				t.Errorf("groups %+v", r.Groups)
			}
			if test.secure && (r.Stats.Handshakes != 20 || p.accepted.Load() != 20 || r.Handshake.Count() != 20) {
				t.Errorf("%d handshakes, the server saw %d", r.Stats.Handshakes, p.accepted.Load())
			}
		})
	}
}

func TestAFailedBenchLeavesNoDescriptors(t *testing.T) {
	descriptors := func() int {
		open, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip(err)
		}
		return len(open)
	}
	before := descriptors()
	for range 50 {
		if _, err := newBench(BenchConfig{URI: "coap://127.0.0.1", Workers: 2, Payload: make([]byte, maxRequest)}); err == nil {
			t.Fatal("a request that fits no buffer is accepted")
		}
	}
	if after := descriptors(); after >= before+50 {
		t.Errorf("%d descriptors, %d before", after, before)
	}
}

// A client that changes its source port keeps its session. pion hands a request over before it notes where it came from: an answer
// that is faster goes to the old port, is lost and requested again.
func TestBenchRebind(t *testing.T) {
	p := newPeer(t, true)
	r, err := Bench(t.Context(), BenchConfig{
		URI: p.uri, Clients: 10, Requests: 100, RebindEvery: time.Millisecond, NoStop: true, Pause: time.Millisecond, AckTimeout: 200 * time.Millisecond,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if s := r.Stats; s.Rebinds == 0 || s.Requests != 1000 || s.Rehandshakes != 0 || s.LostSessions != 0 || p.accepted.Load() != 10 {
		t.Fatalf("%+v, the server saw %d handshakes", s, p.accepted.Load())
	}
}

// A client that changes its source address keeps its session too.
func TestBenchMovesFromAddressToAddress(t *testing.T) {
	p := newPeer(t, true)
	from := []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("127.0.0.3")}
	r, err := Bench(t.Context(), BenchConfig{
		URI: p.uri, Clients: 10, Requests: 100, RebindEvery: time.Millisecond, NoStop: true, Pause: time.Millisecond, AckTimeout: 200 * time.Millisecond, From: from,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if s := r.Stats; s.Moves == 0 || s.Moves != s.Rebinds || s.Requests != 1000 || s.Rehandshakes != 0 || s.LostSessions != 0 || p.accepted.Load() != 10 {
		t.Fatalf("%+v, the server saw %d handshakes", s, p.accepted.Load())
	}
}

// A server that falls silent costs requests and sessions, and the clients come back with new handshakes.
func TestBenchLoss(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	p := newPeer(t, true)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	phase := 0 // a loaded machine may lose requests before the server falls silent
	r, err := Bench(ctx, BenchConfig{URI: p.uri, Clients: 4, Duration: time.Hour, NoStop: true, AckTimeout: 10 * time.Millisecond, LiveEvery: 100 * time.Millisecond}, func(s Snapshot) {
		switch {
		case phase == 0 && s.Total.Requests > 0:
			p.silent.Store(true)
			phase = 1
		case phase == 1 && s.Total.Rehandshakes > 0 && s.Total.LostSessions >= 4:
			p.silent.Store(false)
			phase = 2
		case phase == 2 && s.Interval.Requests > 0:
			cancel()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if s := r.Stats; s.Lost < 4 || s.LostSessions < 4 || s.Rehandshakes < 1 || s.Retransmissions < 16 || s.Errors < s.Lost {
		t.Fatalf("%+v", s)
	}
}

// What no one answers until the end of the drain is lost, not forgotten.
func TestBenchErrors(t *testing.T) {
	p := newPeer(t, false)
	p.code.Store(uint32(message.NotFound))
	if _, err := Bench(t.Context(), BenchConfig{URI: p.uri}, nil); err == nil || !strings.Contains(err.Error(), "4.04 NOT FOUND") {
		t.Errorf("error response to the first request: %v", err)
	}
	gone := newPeer(t, false)
	ctx, cancel := context.WithCancel(t.Context())
	gone.silent.Store(true)
	cancel()
	if _, err := Bench(ctx, BenchConfig{URI: gone.uri}, nil); err == nil {
		t.Error("cancelled before the first answer, and no error")
	}
	if _, err := Bench(t.Context(), BenchConfig{URI: "coap://127.0.0.1:1/x"}, nil); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("nothing listens: %v", err)
	}
}

func TestBenchValidate(t *testing.T) {
	for want, cfg := range map[string]BenchConfig{
		"clients: -1":          {Clients: -1},
		"not be negative":      {Requests: -1},
		"connection id length": {CIDLength: 9},
		"rebind share":         {RebindShare: 2},
		"use each or shared":   {Sockets: "many"},
		"source addresses":     {From: []netip.Addr{netip.IPv4Unspecified()}},
		"no length of them":    {NoCID: true, CIDLength: 4},
		"socket of its own":    {NoCID: true, Sockets: SocketsShared},
		"use 4 to 8":           {Sockets: SocketsShared, CIDLength: 2},
	} {
		cfg.URI = "coaps://localhost/x"
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", cfg, err, want)
		}
	}
}

// The progress line is the source document's.
func TestLine(t *testing.T) {
	s := Snapshot{
		Total: BenchStats{Requests: 210767, Clients: 2000}, Interval: BenchStats{Requests: 210767, Retransmissions: 2698}, Period: 10 * time.Second,
	}
	if got, want := s.Line(), "210767 requests (21077 reqs/s, 2698 retransmissions (1.28%), 0 transmission errors (0.00%), 2000 clients)"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if got := (Snapshot{}).Line(); !regexp.MustCompile(`^0 requests \(0 reqs/s, .*\)$`).MatchString(got) {
		t.Error(got)
	}
}

func TestResultJSON(t *testing.T) {
	p := newPeer(t, false)
	r, err := Bench(t.Context(), BenchConfig{URI: p.uri, Clients: 1, Requests: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(r)
	if err != nil || !strings.Contains(string(text), `"requests":1`) || !strings.Contains(string(text), `"p99_ms":`) {
		t.Errorf("%s, %v", text, err)
	}
}

// A client makes a new session after so many requests.
func TestBenchRepeatsHandshakes(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	p := newPeer(t, true)
	r, err := Bench(t.Context(), BenchConfig{URI: p.uri, Clients: 5, Requests: 6, HandshakeEvery: 2}, nil)
	if err != nil {
		t.Fatal(err)
	}
	// The first client has made its first request before the load.
	if s := r.Stats; s.Requests != 30 || s.Handshakes != 15 || s.Rehandshakes != 10 || s.Errors+s.LostSessions != 0 || p.accepted.Load() != 15 {
		t.Errorf("%+v, the server saw %d handshakes", s, p.accepted.Load())
	}
}

// With serial numbers an answer that does not begin with its request's counts as wrong.
func TestBenchSerials(t *testing.T) {
	p := newPeer(t, false) // it answers with a text of its own
	for serials, wrong := range map[bool]uint64{true: 30, false: 0} {
		r, err := Bench(t.Context(), BenchConfig{URI: p.uri, Clients: 3, Requests: 10, Serials: serials}, nil)
		if err != nil || r.Stats.Requests != 30 || r.Stats.Wrong != wrong {
			t.Errorf("serials %v: %+v, %v", serials, r.Stats, err)
		}
	}
	for name, c := range map[string]BenchConfig{"short": {Payload: []byte("1234567")}, "blocks": {BlockSize: 64}, "observe": {Mode: ModeObserve}} {
		c.URI, c.Serials = p.uri, true
		if _, err := Bench(t.Context(), c, nil); err == nil || !strings.Contains(err.Error(), "serial numbers") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
