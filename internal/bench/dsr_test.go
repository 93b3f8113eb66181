package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
	"github.com/weir-lb/weir/internal/testbed/procstat"
)

func TestTakeTurnsStartsEachRoundElsewhere(t *testing.T) {
	var order []string
	err := takeTurns(t.Context(), 3, []string{"a", "b", "c"}, func(round int, item string) error {
		order = append(order, fmt.Sprint(round, item))
		return nil
	})
	if want := []string{"0a", "0b", "0c", "1b", "1c", "1a", "2c", "2a", "2b"}; err != nil || !slices.Equal(order, want) {
		t.Errorf("%v, %v", order, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	err = takeTurns(ctx, 5, []int{1, 2}, func(int, int) error { calls++; cancel(); return nil })
	if err == nil || calls != 1 {
		t.Errorf("after an interrupt: %d calls, %v", calls, err)
	}
}

func TestParseIperf(t *testing.T) {
	run, err := parseIperf2([]byte("19700101000000,127.0.0.1,48484,127.0.0.1,5001,1,0.0-2.0,1563164732,12490603924\n"))
	if err != nil || run.bytes != 1563164732 || run.elapsed != 2*time.Second {
		t.Errorf("%+v, %v", run, err)
	}
	for _, bad := range []string{"", "connect failed", "1,2,3,4,5,6,0.0,8,9", "1,2,3,4,5,6,2.0-1.0,8,9", "1,2,3,4,5,6,NaN-NaN,8,9", "1,2,3,4,5,6,0-1,-8,9"} {
		if _, err := parseIperf2([]byte(bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
	run, err = parseIperf3([]byte(`{"end":{"sum_received":{"seconds":1.5,"bytes":3000}}}`))
	if err != nil || run.bytes != 3000 || run.elapsed != 1500*time.Millisecond {
		t.Errorf("%+v, %v", run, err)
	}
	for bad, want := range map[string]string{
		`{"error":"unable to connect"}`:                      "unable to connect",
		`{"end":{"sum_received":{"seconds":1.5,"bytes":0}}}`: "nothing arrived",
		`{"end":{"sum_received":{"bytes":5}}}`:               "nothing arrived",
		`no json`:                                            "report of iperf3",
	} {
		if _, err := parseIperf3([]byte(bad)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestFloodFramesAreValid(t *testing.T) {
	for _, family := range Families() {
		f := flood{Source: clientAddress(family), To: vipAddress(family), Port: floodPort, Flows: 100}
		ports := map[[2]byte]bool{}
		for _, batch := range f.batches() {
			for _, message := range batch {
				frame := slices.Clone(unsafeBytes(message))
				at := 34
				if family == "ipv6" {
					at = 54
				} else if onesComplement(frame[14:34], 0) != 0 {
					t.Fatalf("%s: header checksum of %x", family, frame)
				}
				pseudo := slices.Concat(f.Source.AsSlice(), f.To.AsSlice(), frame[at:])
				if sum := onesComplement(pseudo, uint32(len(frame)-at)+17); sum != 0 {
					t.Fatalf("%s: UDP checksum of %x is off by %x", family, frame, sum)
				}
				ports[[2]byte(frame[at:])] = true
			}
		}
		if len(ports) != 100 {
			t.Errorf("%s: %d flows", family, len(ports))
		}
	}
	f := flood{Source: netip.MustParseAddr("10.0.0.2"), To: netip.MustParseAddr("10.0.0.1")}
	if n := len(f.frame(1)); n != 60 {
		t.Errorf("%d bytes: not the smallest frame", n)
	}
}

func unsafeBytes(m mmsghdr) []byte { return bytesOf(m.header.Iov) }

func TestDSRConfigNamesWhatIsWrong(t *testing.T) {
	good := GridConfig{Rounds: 1, Duration: time.Second}
	short := GridConfig{Rounds: 1, Duration: 300 * time.Millisecond, Loads: []string{"iperf2", loadFrames}}
	if err := errors.Join(good.ValidateDSR(), short.ValidateDSR()); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*GridConfig){
		"0 rounds":                   func(c *GridConfig) { c.Rounds = 0 },
		"iperf3 wants whole seconds": func(c *GridConfig) { c.Duration = 1500 * time.Millisecond },
		"whole tenths":               func(c *GridConfig) { c.Duration, c.Loads = 50*time.Millisecond, []string{loadFrames} },
		`no path "x"; there are routing, iptables-dnat`: func(c *GridConfig) { c.Paths = []string{"x"} },
		`no load "x"; there are iperf2`:                 func(c *GridConfig) { c.Loads = []string{"x"} },
		`no family "x"; there are ipv4`:                 func(c *GridConfig) { c.Families = []string{"x"} },
	} {
		bad := good
		change(&bad)
		if err := bad.ValidateDSR(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %s: %v", want, err)
		}
	}
}

func TestMissingToolsNameTheirPackages(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	err := needTools([]string{"iptables", "ip6tables", "iperf", "iperf", "nft"})
	if want := "not in the PATH: iptables, ip6tables, iperf, nft; install: apt-get install iptables iperf nftables"; err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
	if err := needTools(nil); err != nil {
		t.Error(err)
	}
}

// dsrResults are results of a run with two paths, of which one failed for IPv6.
func dsrResults() []*measure.Result {
	config := GridConfig{Rounds: 3, Duration: 2 * time.Second, Paths: []string{pathRouting, "nft-dnat"}, Loads: []string{"iperf2"}}
	g := dsrGrid(scenarioDSR, config, dsrPaths(), nil, dsrLoads())
	for _, c := range g.cells {
		for number := range 3 {
			gbit := uint64(8 + 2*number)
			if c.path.name != pathRouting {
				gbit /= 2
			}
			cost := time.Duration(gbit) * 2 * 100 * time.Millisecond // 0.1 s for each Gbit
			g.note(c, round{elapsed: 2 * time.Second, bytes: gbit * 2e9 / 8}, spent{window: 2 * time.Second, machine: procstat.Machine{Busy: cost, Ours: cost / 2}})
		}
		if c.path.name != pathRouting && c.family == "ipv6" {
			c.failed = fmt.Errorf("<nothing> arrived")
		}
		if c.path.name == pathRouting {
			c.packets, c.lost = 3, 1
		}
	}
	return g.results(time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC))
}

func TestDSRTableAndReport(t *testing.T) {
	text, err := json.Marshal(dsrResults())
	if err != nil {
		t.Fatal(err)
	}
	results, err := ParseResults(text)
	if err != nil {
		t.Fatal(err)
	}
	if len(failures(results)) != 1 {
		t.Errorf("%d failed", len(failures(results)))
	}
	var table, page bytes.Buffer
	if err := WriteText(&table, results); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"10.0  8.00-12.0", "5.00  4.00-6.00  0.50", "100", "50.0", "failed: nft-dnat, iperf2, ipv6: <nothing> arrived", "lost: routing, iperf2, ipv4: 0.25 of the packets sent"} {
		if !strings.Contains(strings.Join(strings.Fields(table.String()), "  "), strings.Join(strings.Fields(want), "  ")) {
			t.Errorf("no %q in\n%s", want, table.String())
		}
	}
	if err := WriteReport(&page, results); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<svg", "nft-dnat", "not measured", "1 of 4 measurements failed", "&lt;nothing&gt; arrived"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("no %q in the report", want)
		}
	}
	if strings.Contains(page.String(), "NaN") || strings.Contains(page.String(), "<nothing>") {
		t.Error("the report shows NaN, or does not escape")
	}
}

func TestReportOfOtherScenarios(t *testing.T) {
	var page bytes.Buffer
	results := []*measure.Result{
		{Scenario: "coap", Path: "direct", Figures: []measure.Figure{{Name: "cost", Value: 3, Unit: "us"}}},
		{Scenario: "coap", Path: "cluster"},
	}
	if err := WriteReport(&page, results); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(page.String(), "coap: cost") || !strings.Contains(page.String(), "not measured") {
		t.Error(page.String())
	}
}

func TestParseResultsRefuses(t *testing.T) {
	for _, bad := range []string{"", "[]", "[null]", "{}", `{"roads":[]}`, `[{"format":99}]`, "[", "7"} {
		if _, err := ParseResults([]byte(bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
	one, err := json.Marshal(dsrResults()[0])
	if err != nil {
		t.Fatal(err)
	}
	if results, err := ParseResults(one); err != nil || len(results) != 1 {
		t.Errorf("a single result: %v", err)
	}
}

// The paths through the kernel: every figure is there, above zero and in its bounds, and nothing stays behind. iperf3 takes whole
// seconds, so it runs over one path; the others run over each for a part of one.
func TestRootDSRKernelPaths(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 20 s")
	}
	netlabtest.Root(t)
	netlabtest.Tools(t, "iperf", "iperf3", "iptables", "ip6tables", "nft")
	short := slices.DeleteFunc(namesOf(dsrLoads()), func(name string) bool { return name == loadIperf3 })
	kernelPaths(t, 100*time.Millisecond, short, pathRouting, "iptables-dnat", "nft-dnat")
	kernelPaths(t, time.Second, []string{loadIperf3}, pathRouting)
	nothingStays(t)
}

func kernelPaths(t *testing.T, duration time.Duration, loads []string, paths ...string) {
	t.Helper()
	var steps int
	results, err := DSR(t.Context(), GridConfig{
		Rounds: 1, Duration: duration, Paths: paths, Loads: loads,
		Run: Run{Progress: func(float64, string) { steps++ }},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(results) != len(paths)*len(loads)*2 || steps != len(paths)+len(results) {
		t.Errorf("%d results, %d steps", len(results), steps)
	}
	for _, why := range failures(results) {
		t.Error(why)
	}
	for _, r := range results {
		name := strings.Join([]string{r.Path, r.Parameters[paramLoad], r.Parameters[paramFamily]}, " ")
		if r.Elapsed <= 0 || r.Bytes+r.Requests == 0 {
			t.Errorf("%s: %+v", name, r)
		}
		for _, figure := range []string{figureRate, figureRateLow, figureRateHigh, figureRatio, figureOwn} {
			if v := figureOf(r, figure); !(v > 0) || v > 1e6 {
				t.Errorf("%s: %s is %v", name, figure, v)
			}
		}
		if r.Path == pathRouting && math.Abs(figureOf(r, figureRatio)-1) > 1e-9 {
			t.Errorf("%s: ratio to itself is %v", name, figureOf(r, figureRatio))
		}
	}
}

func TestRootDSRInterrupted(t *testing.T) {
	netlabtest.Root(t)
	netlabtest.Tools(t, "iperf")
	ctx, cancel := context.WithCancel(t.Context())
	_, err := DSR(ctx, GridConfig{
		Rounds: 9, Duration: time.Minute, Paths: []string{pathRouting}, Loads: []string{"iperf2"},
		Run: Run{Progress: func(_ float64, what string) {
			if strings.HasPrefix(what, "round") {
				time.AfterFunc(50*time.Millisecond, cancel)
			}
		}},
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	nothingStays(t)
}

// nothingStays looks for namespaces and children of this process.
func nothingStays(t *testing.T) {
	t.Helper()
	entries, _ := os.ReadDir("/run/netns") // it need not exist
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), fmt.Sprintf("weirlab-bench-dsr.%d.", os.Getpid())) {
			t.Errorf("namespace %s is left", entry.Name())
		}
	}
	if children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", os.Getpid())); len(bytes.TrimSpace(children)) > 0 {
		t.Errorf("children are left: %s", children)
	}
}
