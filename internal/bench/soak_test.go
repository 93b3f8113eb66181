package bench

import (
	"bytes"
	"errors"
	"math"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/programs"
)

// A gauge levels off by its last third: what it did before does not matter, noise and single peaks do not either.
func TestLevelOf(t *testing.T) {
	series := func(name string, value func(minute float64) float64) *measure.Series {
		s := &measure.Series{Name: name}
		for second := 0.0; second <= 3600; second += 5 {
			s.At, s.Values = append(s.At, second), append(s.Values, value(second/60))
		}
		return s
	}
	const mb = 1 << 20
	for _, c := range []struct {
		name     string
		gauge    string
		value    func(minute float64) float64
		levelled bool
		perHour  float64
	}{
		{"flat", gaugeResident, func(float64) float64 { return 50 * mb }, true, 0},
		{"grows for half an hour, then no more", gaugeResident, func(m float64) float64 { return mb * (20 + 2*min(m, 30)) }, true, 0},
		{"grows by 24 MB an hour", gaugeResident, func(m float64) float64 { return mb * (50 + 0.4*m) }, false, 24 * mb},
		{"grows by less than its noise may", gaugeResident, func(m float64) float64 { return mb * (30 + 0.05*m) }, true, 3 * mb},
		{"a collector's teeth", gaugeHeap, func(m float64) float64 { return mb * (20 + 10*math.Mod(m*7, 1)) }, true, math.NaN()},
		{"one peak at the end", gaugeResident, func(m float64) float64 {
			if m > 59 {
				return 500 * mb
			}
			return 50 * mb
		}, true, 0},
		{"a descriptor lost every half minute", gaugeDescriptors, func(m float64) float64 { return 20 + math.Floor(2*m) }, false, 120},
		{"goroutines come and go", gaugeGoroutines, func(m float64) float64 { return 20 + 8*math.Mod(m, 2) }, true, math.NaN()},
		{"shrinks", gaugeResident, func(m float64) float64 { return mb * (100 - m) }, true, -60 * mb},
	} {
		l := levelOf(series(c.gauge, c.value), 0.05)
		if l.levelled != c.levelled || !math.IsNaN(c.perHour) && math.Abs(l.perHour-c.perHour) > 0.02*math.Abs(c.perHour)+1e-6 {
			t.Errorf("%s: %+v, want levelled %v and %g an hour", c.name, l, c.levelled, c.perHour)
		}
	}
	if !levelOf(nil, 0.05).levelled {
		t.Error("a gauge without samples grows")
	}
}

func TestMetricSums(t *testing.T) {
	sums := programs.ParseMetrics([]byte("# HELP weir_x it\n# TYPE weir_x gauge\nweir_x{a=\"1 2\"} 3\nweir_x{a=\"b\"} 1.5e1\ngo_goroutines 7\nbroken\n"))
	if len(sums) != 4 || sums["weir_x"] != 18 || sums[`weir_x{a="b"}`] != 15 || sums["go_goroutines"] != 7 {
		t.Errorf("%v", sums)
	}
}

// The verdicts, the table and the page say which process grows and which load lost something.
func TestSoakVerdicts(t *testing.T) {
	s := &soak{config: SoakConfig{Duration: time.Hour, Load: 1, Growth: 5}, started: time.Unix(1e9, 0)}
	leak := &watched{name: "node", alone: true, gauges: map[string]*measure.Series{}}
	for minute := range 61 {
		leak.add(gaugeResident, "bytes", time.Duration(minute)*time.Minute, float64(minute)*1e6)
		leak.add(gaugeThreads, "", time.Duration(minute)*time.Minute, 9)
		leak.add("flows", "", time.Duration(minute)*time.Minute, float64(minute))
	}
	results := []*measure.Result{
		s.processResult(leak, time.Hour),
		s.loadResult(soakLoad{name: "calls"}, soakCounts{answered: 10}, time.Hour),
		s.loadResult(soakLoad{name: "moving"}, soakCounts{answered: 10, lost: 2}, time.Hour),
	}
	for i, want := range []string{verdictGrows, verdictOK, verdictLost} {
		if got := results[i].Parameters[paramVerdict]; got != want {
			t.Errorf("%s: %s, want %s", results[i].Path, got, want)
		}
	}
	if n := missedBy(results); n != 2 {
		t.Errorf("%d failed, want 2", n)
	}
	if short := s.processResult(leak, 5*time.Minute); short.Parameters[paramVerdict] != verdictShort {
		t.Errorf("5 minutes: %v", short.Parameters)
	}
	table, page := shown(t, results)
	for _, want := range []string{"resident memory by 20.0 MB over the last third", "1 processes: grows; 1 loads: nothing lost; 1 loads: lost"} {
		if !strings.Contains(table, want) || !strings.Contains(page, want) {
			t.Errorf("%q is missing in\n%s", want, table)
		}
	}
	if !strings.Contains(page, "soak: tables of node") {
		t.Error("no picture of the tables")
	}
}

// Losses of a run in which the measuring program did not run for a while are void, and the result names when; others stay losses.
func TestSoakVoidsWhatItSleptThrough(t *testing.T) {
	for _, c := range []struct {
		name    string
		gap     time.Duration
		verdict string
		says    string
	}{
		{"on time", lapseEvery, verdictLost, ""},
		{"a little late", lapseEvery + lapseLimit, verdictLost, ""},
		{"not scheduled", 15 * time.Second, verdictVoid, "VOID: the measuring program was not scheduled for 14.8s at 25s"},
	} {
		s := &soak{config: SoakConfig{Duration: time.Hour, Load: 1, Growth: 5}, started: time.Unix(1e9, 0)}
		now := time.Duration(0)
		for now < 25*time.Second {
			now += lapseEvery
			s.lapses.tick(now)
		}
		s.lapses.tick(now + c.gap)
		results := []*measure.Result{
			s.loadResult(soakLoad{name: "tcp-ebpf"}, soakCounts{answered: 10, lost: 20}, time.Hour),
			s.loadResult(soakLoad{name: "calls"}, soakCounts{answered: 10}, time.Hour),
		}
		if lost, kept := results[0].Parameters[paramVerdict], results[1].Parameters[paramVerdict]; lost != c.verdict || kept != verdictOK {
			t.Errorf("%s: %s and %s, want %s and %s", c.name, lost, kept, c.verdict, verdictOK)
		}
		if missedBy(results) != 1 {
			t.Errorf("%s: a loss is no failure", c.name)
		}
		var table bytes.Buffer
		if err := WriteText(&table, results); err != nil || !strings.Contains(strings.Join(strings.Fields(table.String()), " "), c.says) {
			t.Errorf("%s: %v, %q is missing in\n%s", c.name, err, c.says, table.String())
		}
	}
	var l lapses
	for i := range 2 * lapsesKept {
		l.tick(time.Duration(i+1) * time.Minute)
	}
	if !strings.HasSuffix(l.why(), "and 10 times more") || len(l.kept) != lapsesKept {
		t.Error(l.why())
	}
}

// A datagram that finds a socket full is counted by the kernel and by the port of the socket: that says whose fault it was.
func TestFullSocketsAreFound(t *testing.T) {
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	at := conn.LocalAddr().(*net.UDPAddr)
	before, err := readNetLosses(nil)
	if err != nil {
		t.Fatal(err)
	}
	sender, err := net.DialUDP("udp", nil, at)
	if err != nil {
		t.Fatal(err)
	}
	defer sender.Close()
	for range 200 {
		if _, err := sender.Write(make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	// A busy machine hands packets of the loopback to a kernel thread: they arrive, or are dropped, when it runs.
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		drops, err := readSocketDrops(nil, []uint16{uint16(at.Port)})
		after, err2 := readNetLosses(nil)
		if err := errors.Join(err, err2); err != nil || drops > 200 {
			t.Fatalf("%d drops of the socket, %v", drops, err)
		}
		lost := since(before, after)[lossBuffer]
		if drops >= 100 && lost >= drops {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d drops of the socket, %d of the namespace", drops, lost)
		}
	}
}

// What processes count is distinguished: losses from packets that were forwarded, and the stages of TURN.
func TestSoakLosses(t *testing.T) {
	l := soakLosses{}
	l.addCounters("turn", []byte(`weir_turn_listener_reasons_total{listener="udp",reason="ok"} 9
weir_turn_listener_reasons_total{listener="udp",reason="bandwidth"} 2
weir_turn_cluster_packets_total{cluster="a",direction="up"} 5
weir_turn_cluster_packets_total{cluster="b",direction="up"} 6
weir_turn_cluster_packets_total{cluster="b",direction="down"} 70
weir_udp_receive_overflows_total 3
weir_udp_forwarded_total 100
weir_packets_total{reason="cid_unknown"} 8
weir_packets_total{reason="fragment_unknown"} 4
`))
	s := &soak{config: SoakConfig{Duration: time.Hour, Load: 1, Growth: 5}}
	counts := soakCounts{lost: 1, figures: turnCounts{sent: 12, lost: 1}.figures()}
	r := s.lossResult(since(soakLosses{`turn: weir_udp_receive_overflows_total` + lossOfWeir: 1}, l), []soakCounts{counts}, time.Minute)
	want := map[string]float64{
		lossTurnSent: 12, lossTurnPassed: 11, lossTurnReceived: 11,
		"turn: weir_udp_receive_overflows_total" + lossOfWeir:                                    2,
		`turn: weir_turn_listener_reasons_total{listener="udp",reason="bandwidth"}` + lossOfWeir: 2,
		`turn: weir_packets_total{reason="fragment_unknown"}` + lossOfWeir:                       4,
	}
	for _, f := range r.Figures {
		if want[f.Name] != f.Value {
			t.Errorf("%s: %g, want %g", f.Name, f.Value, want[f.Name])
		}
	}
	if len(r.Figures) != len(want) || r.Errors != 1 {
		t.Errorf("%d lost, %v", r.Errors, r.Figures)
	}
	var table, page bytes.Buffer
	if err := errors.Join(WriteText(&table, []*measure.Result{r}), WriteReport(&page, []*measure.Result{r})); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(table.String(), "weir_udp_receive_overflows_total (weir)") || !strings.Contains(page.String(), "Losses by place") {
		t.Errorf("no table of the losses:\n%s", table.String())
	}
}

// A flow load counts what it opens and keeps, and a flow that stops is lost.
func TestFlowLoad(t *testing.T) {
	for _, stream := range []bool{false, true} {
		server, err := openResponder(nil, netip.MustParseAddrPort("127.0.0.1:0"), "server")
		if err != nil {
			t.Fatal(err)
		}
		defer server.close()
		f, err := openFlow(nil, netip.MustParseAddr("127.0.0.1"), server.at(), stream)
		if err != nil {
			t.Fatal(err)
		}
		defer f.close()
		for range 3 {
			owner, _, err := f.query(t.Context())
			if want := "server " + f.conn.LocalAddr().String(); err != nil || owner != want {
				t.Errorf("stream %v: %q, %v; want %q", stream, owner, err, want)
			}
		}
	}
}

func TestSoakConfig(t *testing.T) {
	good := SoakConfig{Duration: time.Hour, Every: 5 * time.Second, Load: 1, Growth: 5}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*SoakConfig){
		"--duration": func(c *SoakConfig) { c.Duration = time.Second },
		"--every":    func(c *SoakConfig) { c.Every = time.Hour },
		"--load":     func(c *SoakConfig) { c.Load = math.NaN() },
		"--growth":   func(c *SoakConfig) { c.Growth = 0 },
	} {
		c := good
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error about %s", err, want)
		}
	}
}
