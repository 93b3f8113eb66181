package bench

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/procstat"
	"github.com/weir-lb/weir/internal/testbed/testbedtest"
)

// The rows are what iperf 2.1.8 of Debian printed when it was run.
func TestIperfReportsAreRead(t *testing.T) {
	file, err := os.Open(filepath.Join("testdata", "iperf-2.1.8-server.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	rows, err := parseIperfRows(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 3 {
		t.Fatalf("%d rows: %+v", len(rows), rows)
	}
	want := v1.TurnBenchConnection{
		ID: 3, Seconds: 1.0013, Bytes: 1.19 * (1 << 20), Bandwidth: 10e6, Jitter: 0.002, Lost: 1, Total: 1253, Latency: true,
		Average: 0.004, Min: 0.002, Max: 0.021, Stdev: 0.001, Rate: 1252 / 1.0013,
	}
	if rows[0] != want {
		t.Errorf("%+v\nwant %+v", rows[0], want)
	}
	text, err := os.ReadFile(filepath.Join("testdata", "iperf-2.1.8-client.txt"))
	if err != nil {
		t.Fatal(err)
	}
	client := iperfClient{}
	client.out.Write(text)
	row, err := client.row()
	if err != nil || row.Total != 66 || row.Lost != 0 || row.Max != 4.298 || row.Jitter != 0.271 {
		t.Errorf("%+v, %v", row, err)
	}
	client.out.Truncate(600) // before the server's report
	if _, err := client.row(); err == nil || !strings.Contains(err.Error(), errNoReport.Error()) {
		t.Errorf("error %v", err)
	}
}

// The rows of STUNner's guide, of another version of iperf, and what an older one leaves out.
func TestIperfRowsOfOtherVersions(t *testing.T) {
	rows, err := parseIperfRows(strings.NewReader(`
[  4] 0.0000-0.9977 sec  1.19 MBytes  10.0 Mbits/sec   0.038 ms 3/1253 (0.24%) 0.061/0.020/3.622/0.161 ms 1253 pps 20465
[  3] 0.0000-4.9589 sec   613 KBytes  1.01 Mbits/sec   0.756 ms    0/  628 (0%)  7.780/ 7.094/56.286/ 4.166 ms  127 pps  985 Byte 16.28
[  8] 0.00-1.00 sec  1.19 MBytes  10.0 Mbits/sec   0.002 ms    4/  850 (0.47%)
[  8] 0.00-1.00 sec  12 datagrams received out-of-order
[  9] 1.0000-2.0000 sec  1.19 MBytes  10.0 Mbits/sec   0.001 ms 0/1250 (0%) 0.004/0.002/0.011/0.002 ms 1250 pps
[SUM] 0.0000-4.9643 sec  2.99 MBytes  5.06 Mbits/sec   0.000 ms    0/ 3140 (0%)
[  7] 0.0000-1.0000 sec  0.00 Bytes  0.00 bits/sec   0.000 ms 9/9 (1e+02%) -/-/-/- ms 0 pps
`))
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 4 {
		t.Fatalf("%d rows: %+v", len(rows), rows)
	}
	if r := rows[1]; r.Total != 628 || r.Max != 56.286 || r.Min != 7.094 || r.Bytes != 613*1024 {
		t.Errorf("%+v", r)
	}
	if r := rows[2]; r.Latency || r.Reordered != 12 || r.Lost != 4 {
		t.Errorf("%+v", r)
	}
	if r := rows[3]; r.Lost != 9 || r.Rate != 0 || r.Latency {
		t.Errorf("%+v", r)
	}
	if _, err := parseIperfRows(strings.NewReader("[  1] 0.0000-1.0000 sec  1.19 MBytes  10.0 Mbits/sec   0.002 ms 1/99999999999999999999 (0%)")); err == nil {
		t.Error("a number that is too large was read")
	}
}

func FuzzIperfRows(f *testing.F) {
	f.Add("[  4] 0.0000-0.9977 sec  1.19 MBytes  10.0 Mbits/sec   0.038 ms 3/1253 (0.24%) 0.061/0.020/3.622/0.161 ms 1253 pps 20465")
	f.Add("[  8] 0.00-1.00 sec  12 datagrams received out-of-order")
	f.Fuzz(func(t *testing.T, text string) {
		rows, err := parseIperfRows(strings.NewReader(text))
		if err != nil {
			return
		}
		for i := range rows {
			_ = turnLine(&rows[i])
		}
		sum := turnSum(rows)
		_ = turnLine(&sum)
	})
}

// What is printed can be read again: it is iperf's form.
func TestRowsArePrintedAsIperfDoes(t *testing.T) {
	row := v1.TurnBenchConnection{
		ID: 4, Seconds: 0.9977, Bytes: 1250000, Bandwidth: 10.02e6, Jitter: 0.038, Lost: 3, Total: 1253, Latency: true, Average: 0.061, Min: 0.020,
		Max: 3.622, Stdev: 0.161, Rate: 1253,
	}
	const want = "[  4] 0.0000-0.9977 sec  1.19 MBytes  10.0 Mbits/sec   0.038 ms 3/1253 (0.24%) 0.061/0.020/3.622/0.161 ms 1253 pps 20533"
	if got := turnLine(&row); got != want {
		t.Errorf("%q\nwant %q", got, want)
	}
	again, err := parseIperfRows(strings.NewReader(turnLine(&row)))
	if err != nil || len(again) != 1 || again[0].Lost != 3 || again[0].Stdev != 0.161 {
		t.Errorf("%+v, %v", again, err)
	}
	for v, want := range map[float64]string{0: "0.00 ", 999: "999 ", 1000: "1.00 K", 9990: "9.99 K", 123456: "123 K", 50.2e6: "50.2 M", 1e12: "1.00 T"} {
		if got := scaled(v, 1000); got != want {
			t.Errorf("scaled(%v) = %q, want %q", v, got, want)
		}
	}
	if got := turnLine(&v1.TurnBenchConnection{ID: -1, Total: 5, Lost: 5}); !strings.Contains(got, "[SUM]") || !strings.Contains(got, "5/5 (1e+02%) -/-/-/- ms 0 pps") {
		t.Errorf("%q", got)
	}
}

func TestSumOfRows(t *testing.T) {
	sum := turnSum([]v1.TurnBenchConnection{
		{ID: 1, Seconds: 1, Bytes: 100, Bandwidth: 800, Jitter: 1, Lost: 1, Total: 5, Latency: true, Average: 2, Min: 1, Max: 3, Stdev: 1, Rate: 4},
		{ID: 2, Seconds: 2, Bytes: 300, Bandwidth: 1200, Jitter: 3, Lost: 0, Total: 4, Latency: true, Average: 4, Min: 0.5, Max: 9, Stdev: 1, Rate: 2, Reordered: 7},
		{ID: 3, Seconds: 1, Lost: 9, Total: 9},
	})
	want := v1.TurnBenchConnection{ID: -1, Seconds: 2, Bytes: 400, Bandwidth: 2000, Jitter: 4. / 3, Lost: 10, Total: 18, Latency: true, Average: 3, Min: 0.5, Max: 9, Stdev: math.Sqrt2, Rate: 6, Reordered: 7}
	if math.Abs(sum.Jitter-want.Jitter) < 1e-12 {
		sum.Jitter = want.Jitter
	}
	if sum != want {
		t.Errorf("%+v\nwant %+v", sum, want)
	}
	if sum := turnSum(nil); turnLoss(&sum) != 0 || sum.Latency {
		t.Errorf("%+v", sum)
	}
}

// A server that carries up to a rate is found within the precision, also when one try in four fails by chance.
func TestSearchFindsTheRate(t *testing.T) {
	for _, limit := range []float64{50, 300, 9000, 45600, 123456, 2e6} {
		for _, noisy := range []bool{false, true} {
			s := newTurnSearch(16000, 1e6)
			tries := 0
			for rate, more := s.next(); more; rate, more = s.next() {
				loss := 0.0
				if rate > limit {
					loss = 1 - limit/rate
				}
				if tries++; noisy && tries%4 == 1 {
					loss += 0.5
				}
				if tries > 200 {
					t.Fatalf("limit %v: no end", limit)
				}
				s.observe(loss, loss)
			}
			switch {
			case limit < s.minimum:
				if s.held != 0 {
					t.Errorf("limit %v: %v held", limit, s.held)
				}
			case limit > s.maximum:
				if s.held != s.maximum || s.failed != 0 {
					t.Errorf("limit %v: %v held, %v failed; want the search's own limit", limit, s.held, s.failed)
				}
			case s.held > limit*1.011 || s.held < limit/s.precision/1.001: // a loss below 1 % is let pass
				t.Errorf("limit %v, noisy %v: %v held, %v failed", limit, noisy, s.held, s.failed)
			}
		}
	}
}

// A rate that could not be sent says nothing of the server.
func TestSearchKnowsAGeneratorThatIsTooSlow(t *testing.T) {
	s := newTurnSearch(16000, 1e6)
	for rate, more := s.next(); more; rate, more = s.next() {
		s.observe(max(1-50000/rate, 0), 0)
	}
	if !s.unsent() || s.held < 45000 {
		t.Errorf("held %v, unsent %v", s.held, s.unsent())
	}
	s = newTurnSearch(16000, 1e6)
	for rate, more := s.next(); more; rate, more = s.next() {
		s.observe(max(1-50000/rate, 0), max(1-50000/rate, 0))
	}
	if s.unsent() {
		t.Error("loss was taken for want of sending")
	}
}

func TestTurnConfigIsChecked(t *testing.T) {
	for want, change := range map[string]func(c *TurnConfig){
		"platform k8s measures the gateway that":  func(c *TurnConfig) { c.Platform, c.Sweep = "k8s", true },
		`platform "x": write local, k8s`:          func(c *TurnConfig) { c.Platform = "x" },
		`road "x": write cat, direct-channel`:     func(c *TurnConfig) { c.Path = "x" },
		`--with "x": write coturn, stunnerd`:      func(c *TurnConfig) { c.With = []string{"x"} },
		`--with "none": write coturn, stunnerd`:   func(c *TurnConfig) { c.With = []string{"none", "coturn"} },
		`generator "x": write auto`:               func(c *TurnConfig) { c.Generator = "x" },
		`offload "x": write none, auto, tcx, xdp`: func(c *TurnConfig) { c.Offload = "x" },
		`network "x": write auto, loopback, veth`: func(c *TurnConfig) { c.Network = "x" },
		"offload xdp needs interfaces":            func(c *TurnConfig) { c.Offload, c.Network = "xdp", networkLoopback },
		"packets of 39 bytes: want 40 to 1472":    func(c *TurnConfig) { c.Size = 39 },
		"packets of 1473 bytes":                   func(c *TurnConfig) { c.Sweep, c.Sizes = true, []int{64, 1473} },
		"0 clients: want 1 to 1000":               func(c *TurnConfig) { c.Clients = 0 },
		"1ms: want 0.1 s to an hour":              func(c *TurnConfig) { c.Duration = time.Millisecond },
		"10 bits/s: want 1k to 100G":              func(c *TurnConfig) { c.Bandwidth = 10 },
		"bursts of 65":                            func(c *TurnConfig) { c.Burst = 65 },
		"iperf has no TURN":                       func(c *TurnConfig) { c.Path, c.Generator = turnPathChannel, generatorIperf },
		"sweep of 0 sizes":                        func(c *TurnConfig) { c.Sweep, c.Sizes = true, nil },
		"rate of 1 packets/s: want 100 to 10M":    func(c *TurnConfig) { c.Rates = []float64{1} },
	} {
		config := turnConfig()
		change(&config)
		if err := config.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	config := turnConfig()
	if err := config.Validate(); err != nil {
		t.Error(err)
	}
	if rate := config.rate(); rate != 6250 { // 5 clients of 10 Mbit/s, 1000 bytes
		t.Errorf("%v packets/s", rate)
	}
}

func turnConfig() TurnConfig {
	return TurnConfig{
		Clients: 5, Duration: time.Second, Size: 1000, Bandwidth: 10e6, Platform: "local", Path: TurnPathCat,
		Generator: GeneratorBuiltin, Offload: "none", Network: NetworkAuto, Transport: TransportUDP, Direction: DirectionUp, Sizes: TurnSizes(), Rates: []float64{20000}, Rounds: 2, Probe: time.Second, MaxRate: 1e6,
	}
}

// What a sender could not send counts as lost to a search: the rate was not carried.
func TestShortfall(t *testing.T) {
	load := turnLoad{rate: 1000, duration: time.Second}
	for _, c := range []struct {
		total, lost uint64
		want        float64
	}{{1000, 10, 0.01}, {980, 0, 0}, {900, 0, 0.1}, {900, 100, 0.2}, {0, 0, 1}} {
		p := turnPhase{load: load, sum: v1.TurnBenchConnection{Total: c.total, Lost: c.lost}}
		if got := p.shortfall(); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%d sent, %d lost: %v, want %v", c.total, c.lost, got, c.want)
		}
	}
}

func TestRoundsAddUp(t *testing.T) {
	phase := func(cpu time.Duration, received uint64) turnPhase {
		l := measure.NewLatency()
		l.RecordN(time.Millisecond, received)
		return turnPhase{
			load: turnLoad{1000, 64, time.Second}, sum: v1.TurnBenchConnection{Total: received, Rate: float64(received)}, latency: l,
			processes: []measure.Process{{Name: partGateway, CPU: cpu, PeakBytes: 5}}, machine: procstat.Machine{Ours: 2 * cpu},
		}
	}
	rounds := []turnPhase{phase(5*time.Millisecond, 1000), phase(3*time.Millisecond, 600)}
	sum := addUp(rounds)
	if sum.received() != 1600 || sum.processes[0].CPU != 8*time.Millisecond || sum.latency.Count() != 1600 || sum.load.duration != 2*time.Second || sum.sum.Rate != 800 {
		t.Errorf("%+v", sum)
	}
	if rounds[0].processes[0].CPU != 5*time.Millisecond || rounds[0].latency.Count() != 1000 {
		t.Errorf("adding up changed a round: %+v", rounds[0])
	}
	if costs := serverCosts(rounds); costs[0] != 5 || costs[1] != 5 {
		t.Errorf("costs %v", costs)
	}
}

// The text and the JSON of a single load and of a sweep, of made-up measurements.
func TestTurnReports(t *testing.T) {
	stage := &turnStage{config: turnConfig(), started: time.Unix(1e9, 0).UTC(), network: "loopback of the host", offload: "none"}
	stage.config.With, stage.config.Sizes = []string{peerCoturn}, []int{64, 1200}
	paths := []*turnPath{{name: pathTurnDirect}, {name: pathTurnWeirCat}, {name: peerCoturn + pathTurnCat}}
	var single, sweep []*TurnRun
	for i, path := range paths {
		single = append(single, stage.result(scenarioTurn, path, madeUp(i, 1000, 6250)))
	}
	for _, size := range stage.config.Sizes {
		for i, path := range paths {
			cell := &turnCell{path: path, size: size, rates: [][]turnPhase{{madeUp(i, size, 20000), madeUp(i, size, 20000)}}}
			if i > 0 {
				best := madeUp(i, size, 40000)
				cell.search, cell.best = &turnSearch{held: 40000, failed: float64(i-1) * 42000, trace: []v1.TurnBenchTry{{Rate: 40000, Loss: 0.001, Lost: 0.001, Held: true}}}, &best
			}
			sweep = append(sweep, stage.cellResults(cell)...)
		}
	}
	for name, runs := range map[string][]*TurnRun{"turn": single, "turn-sweep": sweep} {
		for _, run := range runs {
			run.Machine = measure.Machine{CPU: "a CPU", Cores: 2, Kernel: "6.18"}
		}
		var text, page bytes.Buffer
		if err := WriteTurn(&text, stage.config, runs); err != nil {
			t.Fatal(err)
		}
		testbedtest.Golden(t, name+".txt", text.String())
		form, err := json.Marshal(runs)
		if err != nil {
			t.Fatal(err)
		}
		read, err := ParseResults(form) // what `weir bench report` does
		if err != nil {
			t.Fatal(err)
		}
		if err := WriteReport(&page, read); err != nil {
			t.Fatal(err)
		}
		testbedtest.Golden(t, name+".html", page.String())
		if !strings.Contains(string(form), `"connections":[{"id":1,`) || !strings.Contains(string(form), `"sum":{"id":-1,`) {
			t.Errorf("%s: no connections or no sum in %s", name, form)
		}
	}
}

// Others' time is divided by the time in which it was spent, the load's start and end included, and never exceeds the machine's.
func TestTurnOthersFitIntoTheMachine(t *testing.T) {
	window := 3 * time.Second // of a load of 2 s
	for _, c := range []struct {
		others, busy time.Duration
		want         float64
	}{{4500 * time.Millisecond, 6 * time.Second, 1.5}, {6500 * time.Millisecond, 6 * time.Second, 2}, {-time.Second, 6 * time.Second, 0}} {
		p := turnPhase{load: turnLoad{1000, 64, 2 * time.Second}, window: window, machine: procstat.Machine{Others: c.others, Busy: c.busy}}
		if got := p.others(); got != c.want {
			t.Errorf("%v of %v in %v: %.2f cores, want %.2f", c.others, c.busy, window, got, c.want)
		}
		if sum := addUp([]turnPhase{p, p}); sum.others() != c.want {
			t.Errorf("two phases: %.2f cores, want %.2f", sum.others(), c.want)
		}
	}
}

// madeUp is a phase of 2 connections for path i.
func madeUp(i, size int, rate float64) turnPhase {
	l := measure.NewLatency()
	l.RecordN(time.Duration(i+1)*time.Millisecond, uint64(rate))
	row := func(id int) v1.TurnBenchConnection {
		return v1.TurnBenchConnection{
			ID: id, Seconds: 1, Bytes: rate / 2 * float64(size), Bandwidth: rate / 2 * float64(size) * 8, Jitter: 0.01, Lost: uint64(i), Total: uint64(rate/2) + uint64(i), Latency: true,
			Average: float64(i + 1), Min: 0.5, Max: 9, Stdev: 0.1, Rate: rate / 2,
		}
	}
	p := turnPhase{
		load: turnLoad{rate, size, time.Second}, rows: []v1.TurnBenchConnection{row(1), row(2)}, latency: l,
		machine: procstat.Machine{Busy: 800 * time.Millisecond, Ours: 400 * time.Millisecond, Others: 300 * time.Millisecond},
		window:  time.Second,
	}
	if i > 0 {
		p.processes = []measure.Process{{Name: []string{"", partGateway, peerCoturn}[i], CPU: time.Duration(i) * 100 * time.Millisecond}, {Name: partCat, CPU: 200 * time.Millisecond}}
	}
	p.processes = append(p.processes, measure.Process{Name: partGenerator, CPU: 150 * time.Millisecond})
	p.sum = turnSum(p.rows)
	return p
}
