package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/programs"
)

func TestNFQueueConfigNamesWhatIsWrong(t *testing.T) {
	good := NFQueueConfig{GridConfig: GridConfig{Rounds: 1, Duration: time.Second}}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*NFQueueConfig){
		"0 rounds":                   func(c *NFQueueConfig) { c.Rounds = 0 },
		"whole tenths":               func(c *NFQueueConfig) { c.Duration = 1550 * time.Millisecond },
		`no path "x"; there are dir`: func(c *NFQueueConfig) { c.Paths = []string{"x"} },
		`no load "x"; there are tcp`: func(c *NFQueueConfig) { c.Loads = []string{"x"} },
		`no family "x"`:              func(c *NFQueueConfig) { c.Families = []string{"x"} },
		`no offload "x"; there are`:  func(c *NFQueueConfig) { c.Offloads = []string{"x"} },
		"bandwidth 1 bit/s":          func(c *NFQueueConfig) { c.Bandwidths = []float64{1} },
		"bandwidth NaN bit/s":        func(c *NFQueueConfig) { c.Bandwidths = []float64{math.NaN()} },
		"0 fragmented datagrams":     func(c *NFQueueConfig) { c.Fragmented = []int{0} },
		`--with "x": write nfqlb`:    func(c *NFQueueConfig) { c.With = []string{"x"} },
	} {
		bad := good
		change(&bad)
		if err := bad.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %s: %v", want, err)
		}
	}
}

func TestParseQueues(t *testing.T) {
	rows, err := parseQueues("    0   4242     3 2   512     7     8       99  1\n    1   4243     0 2   512     0     0        0  1\n")
	if want := map[int]queueRow{0: {3, 7, 8, 99}, 1: {}}; err != nil || !maps.Equal(rows, want) {
		t.Errorf("%v, %v", rows, err)
	}
	for _, bad := range []string{"1 2 3", "a b c d e f g h i", "0 1 2 3 4 5 6 99999999999 1"} {
		if _, err := parseQueues(bad); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
	now, before := queueRow{0, 1, 2, 5}, queueRow{0, math.MaxUint32, 2, math.MaxUint32 - 1}
	if got := now.since(before); got != (queueRow{0, 2, 0, 7}) {
		t.Errorf("counters that wrapped: %+v", got)
	}
}

func TestParseIperfStreams(t *testing.T) {
	run, err := parseIperfStreams([]byte("0,10.61.0.103,56461,10.96.0.1,5001,3,0.0-1.0,100,800\n0,10.61.0.101,54761,10.96.0.1,5001,1,0.0-1.5,200,1600\n0,10.61.0.2,0,10.96.0.1,5001,-1,0.0-1.5,300,2400\n"))
	if err != nil || run.bytes != 300 || run.elapsed != 1500*time.Millisecond {
		t.Errorf("%+v, %v", run, err)
	}
	for _, bad := range []string{"", "connect failed: Connection refused\n", "0,a,1,b,2,-1,0.0-1.0,5,40\n"} {
		if _, err := parseIperfStreams([]byte(bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

// What is compared stands side by side, and every load is measured in the networks it is for.
func TestNFQueueChoosesCells(t *testing.T) {
	config := NFQueueConfig{GridConfig: GridConfig{Rounds: 1, Duration: time.Second}}
	g := nfqGrid(config)
	count := map[string][]string{}
	for _, cell := range g.cells {
		key := cell.load.name + " " + cell.path.nfq.offload
		count[key] = append(count[key], cell.path.name)
		if strings.Contains(cell.path.title(), "two hops") != (cell.load.kind == loadFragments) {
			t.Errorf("%s in %s", cell.load.name, cell.path.title())
		}
	}
	three, all := "[direct queue fast]", "[direct queue queues fast]"
	want := map[string]string{
		"tcp on": three, "tcp off": three, "tcp8 on": three, "tcp8 off": three, "tcp8-sources on": all, "tcp8-sources off": all,
		"udp-2G off": three, "udp-4G off": three, "fragments-15000 off": three, "fragments-40000 off": three,
		"flood off": all, "paced off": all, "pingpong off": three,
	}
	got := map[string]string{}
	for key, paths := range count {
		got[key] = fmt.Sprint(paths)
	}
	if !maps.Equal(got, want) {
		t.Errorf("%v", got)
	}
	if len(g.paths) != 4+4+3 {
		t.Errorf("%d networks", len(g.paths))
	}
	config.With = []string{peerNfqlb}
	g = nfqGrid(config)
	for _, cell := range g.cells {
		if compare := cell.path.nfq.compare; compare != "" && g.other(cell, compare).path == nil {
			t.Errorf("%s of %s has no path of nfqlb's to compare with", cell.load.name, cell.path.title())
		}
	}
	for _, aim := range aims() { // an aim that nothing measures would never be reported
		if paths := count[aim.load+" "+max(aim.offload, "off")]; !slices.Contains(paths, aim.path) {
			t.Errorf("nothing measures %q", aim.text)
		}
	}
}

// nfqResults are results of a run of three rounds: the queue carries half, the queues fail, the fast path is not there.
func nfqResults() []*measure.Result {
	g := nfqGrid(NFQueueConfig{GridConfig: GridConfig{Rounds: 3, Duration: 2 * time.Second, Loads: []string{loadTCP, loadFlood, loadPingPong}}, Offloads: []string{"off"}})
	for _, cell := range g.cells {
		for number := range uint64(3) {
			run, spent := round{elapsed: 2 * time.Second}, spent{window: 2 * time.Second}
			spent.machine.Busy = time.Second
			part := uint64(1)
			if cell.path.name == pathQueue {
				part = 2
				cell.path.nfq.weir = &programs.Daemon{}
				spent.balancer, spent.queues = time.Second, map[int]queueRow{0: {sequence: 200_000, queueDrops: 1}}
			}
			switch cell.load.kind {
			case loadTCP:
				run.bytes = (8 + 2*number) * 2e9 / 8 / part
			case loadFlood:
				run.packets, run.sent = (200_000+number)/part, 200_000+number
			case loadPingPong:
				run.packets, run.sent, run.trips = 1000, 1000, &RoundTrips{Count: 1000, Best: 10 * float64(part), Median: 20 * float64(part), Ninety9: 30}
			}
			g.note(cell, run, spent)
		}
		switch cell.path.name {
		case pathQueue:
			cell.path.nfq.first = map[int]queueRow{0: {sequence: 7}}
		case pathQueues:
			cell.failed = errors.New("<nothing> arrived")
		case pathFast:
			cell.path.absent = "this weir has no --fast"
		}
		cell.path.failed = cell.failed
	}
	for _, p := range g.paths { // their networks were never up
		if p.nfq.weir != nil {
			p.failed = errors.New("not up")
		}
	}
	return g.results(time.Date(2026, 11, 22, 11, 0, 0, 0, time.UTC))
}

func TestNFQueueTableAndReport(t *testing.T) {
	text, err := json.Marshal(nfqResults())
	if err != nil {
		t.Fatal(err)
	}
	results, err := ParseResults(text)
	if err != nil {
		t.Fatal(err)
	}
	var table, page bytes.Buffer
	if err := WriteText(&table, results); err != nil {
		t.Fatal(err)
	}
	squeezed := strings.Join(strings.Fields(table.String()), " ")
	for _, want := range []string{
		"direct 10.0 8.00-12.0 1.00 25.0", "queue 5.00 4.00-6.00 0.50 25.0 5.00 600000 3 0",
		"queue 50.0 50.0-50.0 0.50 100 50.0 25.0 5.00 600000 3 0", "queue 40.0 40.0-40.0 2.00 20.0 30.0 100 25.0",
		"queues failed", "fast not available", "not available: fast: this weir has no --fast", "failed: queues, flood, ipv4: <nothing> arrived",
		"queue, offload off, before: queue 0: waiting 0, queue drops 0, user drops 0, sequence 7",
		"at most 4.5 µs/packet; here 5.00: not reached",
		"fast path, one TCP stream, offload off, ipv4: at least 0.95 of direct; here -: not measured",
	} {
		if !strings.Contains(squeezed, want) {
			t.Errorf("no %q in\n%s", want, table.String())
		}
	}
	if err := WriteReport(&page, results); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<svg", "not measured", "1 of 10 measurements failed", "&lt;nothing&gt; arrived", "not available"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("no %q in the report", want)
		}
	}
	if text := table.String() + page.String(); strings.Contains(text, "nfqlb") {
		t.Error("a figure of nfqlb, which did not run")
	}
	if strings.Contains(page.String(), "NaN") || strings.Contains(page.String(), "<nothing>") {
		t.Error("the report shows NaN, or does not escape")
	}
}

// Weir's paths are compared with the peer's that have as many queues, round by round.
func TestNFQueueComparesWithNfqlb(t *testing.T) {
	g := nfqGrid(NFQueueConfig{GridConfig: GridConfig{Rounds: 2, Duration: time.Second, Loads: []string{loadFlood}}, With: []string{peerNfqlb}})
	for _, cell := range g.cells {
		packets := map[string]uint64{pathDirect: 400_000, pathNfqlb: 100_000, pathNfqlbQueues: 150_000, pathQueue: 200_000, pathQueues: 225_000}[cell.path.name]
		for number := range uint64(2) {
			g.note(cell, round{elapsed: time.Second, packets: packets * (number + 1), sent: 800_000}, spent{})
		}
	}
	var table bytes.Buffer
	if err := WriteText(&table, g.results(time.Date(2026, 11, 22, 11, 0, 0, 0, time.UTC))); err != nil {
		t.Fatal(err)
	}
	squeezed := strings.Join(strings.Fields(table.String()), " ")
	for _, want := range []string{"x direct x nfqlb", "nfqlb 150 100-200 0.25 -", "queue 300 200-400 0.50 2.00", "queues 338 225-450 0.56 1.50"} {
		if !strings.Contains(squeezed, want) {
			t.Errorf("no %q in\n%s", want, table.String())
		}
	}
}

// Everything sent over loopback is counted by the sink, and an echo answers every source.
func TestTrafficCountsWhatArrives(t *testing.T) {
	local := netip.MustParseAddr("127.0.0.1")
	ports, err := freePorts(nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	free := ports[0]
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ready, counted := make(chan struct{}), make(chan DatagramsReceived, 1)
	go func() {
		got, err := Sink(ctx, free, 64, func() { close(ready) })
		if err != nil {
			t.Error(err)
		}
		counted <- got
	}()
	select {
	case <-ready:
	case got := <-counted:
		t.Fatal(got)
	}
	load := Datagrams{Sources: []netip.Addr{local, netip.MustParseAddr("127.0.0.2")}, To: free, Size: 64, Rate: 2000, Duration: 100 * time.Millisecond}
	sent, err := load.Send(t.Context())
	if err != nil || sent.Sent == 0 || sent.Sent > 220 || sent.Elapsed <= 0 {
		t.Errorf("%+v, %v", sent, err)
	}
	load.Size, load.Sources = 65, load.Sources[:1]
	wrong, err := load.Send(t.Context())
	if err != nil {
		t.Error(err)
	}
	cancel()
	if got := <-counted; got.Received+got.Overflowed < sent.Sent || got.Received > sent.Sent || got.WrongSize > wrong.Sent {
		t.Errorf("%+v of %+v and %+v", got, sent, wrong)
	}
	for _, bad := range []Datagrams{{}, {Sources: load.Sources, Size: 7, Duration: 1}, {Sources: load.Sources, Size: 64, Rate: -1, Duration: 1}} {
		if _, err := bad.Send(t.Context()); err == nil {
			t.Errorf("%+v was sent", bad)
		}
	}
}
