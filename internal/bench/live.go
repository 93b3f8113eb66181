package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/weir-lb/weir/internal/testbed/measure"
)

// The roads of [Live] that have no VIP.
const (
	pathFloor      = "floor"              // what the generator does when frames are dropped where they arrive
	pathRoutingXDP = "routing-xdp-sink"   // routing with the sink of the XDP roads
	livePrefix     = "live-"              // of loads; the number of flows follows
	reasonMetric   = "weir_packets_total" // counts packets by reason
)

func liveFlows() []int { return []int{1024, 32768} }

func livePlan() plan {
	p := plan{scenario: scenarioLive, roads: liveRoads(), always: []string{pathFloor, pathRouting}}
	for _, flows := range liveFlows() {
		p.loads = append(p.loads, dsrLoad{
			name: livePrefix + strconv.Itoa(flows), about: fmt.Sprintf("the smallest UDP frames of %d flows", flows),
			run: func(ctx context.Context, b *dsrBench, road *dsrRoad, family string) (dsrRun, error) {
				return runToSink(ctx, b, road, family, flows)
			},
		})
	}
	return p
}

// liveRoads end in sinks: on the TCX hook for what arrives as socket buffers, XDP_DROP for bare frames.
func liveRoads() []dsrRoad {
	floor := dsrRoad{name: pathFloor, about: "the generator alone: XDP_DROP at the gateway", vip: true}
	floor.setup = func(_ context.Context, _ *dsrBench, road *dsrRoad) (err error) {
		road.sink, err = openSink(road.lab.Namespace("gateway"), "veth0", true)
		return err
	}
	roads := []dsrRoad{
		floor,
		toSink(dsrRoad{name: pathRouting, about: "the kernel routes, no VIP; dropped by a TCX program"}, false),
		toSink(dsrRoad{name: pathRoutingXDP, about: "the same; dropped by an XDP program"}, true),
		toSink(dsrRoad{name: pathDNAT, about: "the kernel translates: iptables; TCX sink", tools: []string{"iptables", "ip6tables"}, vip: true, setup: setupIptables}, false),
	}
	for _, hook := range []string{"xdp", "tcx"} {
		sink := "; XDP sink"
		if hook == "tcx" {
			sink = "; TCX sink"
		}
		roads = append(roads,
			toSink(weirRoad("l2dsr", hook, "Weir, MAC address only, on "+hook+sink), hook == "xdp"),
			toSink(weirRoad("nat", hook, "Weir translates the VIP, on "+hook+sink), hook == "xdp"),
			toSink(weirRoad(modeCID, hook, "Weir reads the backend in DTLS connection ids, on "+hook+sink), hook == "xdp"))
	}
	return roads
}

// toSink drops a road's frames where they arrive at the backend. The gateway's first interface polls, as that of a network
// card does: a veth loses bare frames otherwise.
func toSink(road dsrRoad, xdp bool) dsrRoad {
	setup := road.setup
	road.setup = func(ctx context.Context, b *dsrBench, road *dsrRoad) (err error) {
		if setup != nil {
			if err := setup(ctx, b, road); err != nil {
				return err
			}
		}
		err = road.lab.Namespace("gateway").Do(func() error {
			_, err := setGRO("veth0", true)
			return err
		})
		if err != nil {
			return err
		}
		road.sink, err = openSink(road.lab.Namespace("zone1"), "veth3", xdp)
		return err
	}
	return road
}

// LiveRoads names the roads of [Live] in the order of their rows.
func LiveRoads() []string {
	var names []string
	for _, road := range liveRoads() {
		names = append(names, road.name)
	}
	return names
}

// DescribeLiveRoads is LiveRoads, each followed by a tab and what it is.
func DescribeLiveRoads() []string {
	var lines []string
	for _, road := range liveRoads() {
		lines = append(lines, road.name+"\t"+road.about)
	}
	return lines
}

// ValidateLive says what cannot be meant for [Live].
func (c *DSRConfig) ValidateLive() error { return c.validate(livePlan()) }

// Live measures how many of the smallest UDP frames a second one core sends through each road and drops behind it, as [DSR]
// measures its loads. The floor and routing are always measured: the others are compared with them.
func Live(ctx context.Context, config DSRConfig) ([]*measure.Result, error) {
	return runPlan(ctx, config, livePlan())
}

// runToSink is one round of one road.
func runToSink(ctx context.Context, b *dsrBench, road *dsrRoad, family string, flows int) (dsrRun, error) {
	f, err := newFlood(b, road, family)
	if err != nil {
		return dsrRun{}, err
	}
	f.Live, f.Flows, f.CID = true, flows, road.cid
	sender, err := f.openLive()
	if err != nil {
		return dsrRun{}, err
	}
	defer sender.close()
	if err := road.warm(ctx, sender, flows); err != nil {
		return dsrRun{}, err
	}
	byCID, err := road.steeredByCID(ctx)
	if err != nil {
		return dsrRun{}, err
	}
	before, err := road.sink.counter.sum()
	if err != nil {
		return dsrRun{}, err
	}
	sent, elapsed, err := sender.send(ctx)
	if err != nil {
		return dsrRun{}, err
	}
	after, err := road.sink.counter.sum()
	if err != nil {
		return dsrRun{}, err
	}
	run := dsrRun{elapsed: elapsed, packets: after - before, lost: sent - min(sent, after-before)}
	if road.cid {
		now, err := road.steeredByCID(ctx)
		if err != nil {
			return dsrRun{}, err
		}
		if now-byCID < run.packets {
			return dsrRun{}, fmt.Errorf("only %d of %d packets were steered by their connection ids", now-byCID, run.packets)
		}
	}
	return run, nil
}

// warm sends until neighbours are resolved and most flows have begun.
func (r *dsrRoad) warm(ctx context.Context, sender *liveSender, flows int) error {
	start, err := r.sink.counter.sum()
	if err != nil {
		return err
	}
	for range 300 {
		if err := sender.flood.Sender.Do(func() error { return sender.run(max(flows, 4*floodBatch)) }); err != nil {
			return err
		}
		now, err := r.sink.counter.sum()
		if err != nil {
			return err
		}
		if now-start >= uint64(2*flows) {
			return nil
		}
		if err := sleep(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
	return errors.New("frames to " + sender.flood.To.String() + " do not arrive")
}

// steeredByCID is how many packets Weir has counted as such; 0 on a road without it.
func (r *dsrRoad) steeredByCID(ctx context.Context) (uint64, error) {
	if !r.cid {
		return 0, nil
	}
	text, err := r.daemons[0].Do(ctx, http.MethodGet, "/metrics", "")
	if err != nil {
		return 0, err
	}
	var sum float64
	for lines := bufio.NewScanner(strings.NewReader(string(text))); lines.Scan(); {
		line := lines.Text()
		if !strings.HasPrefix(line, reasonMetric+"{") || !strings.Contains(line, `reason="cid"`) {
			continue
		}
		value, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		if err != nil {
			return 0, fmt.Errorf("metric %q: %w", line, err)
		}
		sum += value
	}
	return uint64(sum), nil
}
