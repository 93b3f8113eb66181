package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/weir-lb/weir/internal/testbed/measure"
)

// The paths of [Live] that have no VIP.
const (
	pathFloor      = "floor"              // what the generator does when frames are dropped where they arrive
	pathRoutingXDP = "routing-xdp-sink"   // routing with the sink of the XDP paths
	livePrefix     = "live-"              // of loads; the number of flows follows
	reasonMetric   = "weir_packets_total" // counts packets by reason
)

func liveFlows() []int { return []int{1024, 32768} }

// LivePaths describes the paths of [Live] in the order of their rows: name, tab, what it is.
func LivePaths() []string { return describe(livePaths()) }

// ValidateLive says what cannot be meant for [Live].
func (c *GridConfig) ValidateLive() error { return c.validateDSR(livePaths(), liveLoads()) }

// Live measures how many of the smallest UDP frames a second one core sends through each path and drops behind it, as [DSR]
// measures its loads. The floor and routing are always measured: the others are compared with them.
func Live(ctx context.Context, config GridConfig) ([]*measure.Result, error) {
	if err := config.ValidateLive(); err != nil {
		return nil, err
	}
	return dsrGrid(scenarioLive, config, livePaths(), []string{pathFloor, pathRouting}, liveLoads()).run(ctx)
}

func liveLoads() (loads []*load) {
	for _, flows := range liveFlows() {
		l := &load{name: livePrefix + strconv.Itoa(flows), about: fmt.Sprintf("the smallest UDP frames of %d flows", flows)}
		l.title, l.unit, _ = dsrTitle(l.name)
		l.run = func(ctx context.Context, g *grid, c *cell) (round, error) { return runToSink(ctx, g, c, flows) }
		loads = append(loads, l)
	}
	return loads
}

// livePaths end in sinks: on the TCX hook for what arrives as socket buffers, XDP_DROP for bare frames.
func livePaths() []*path {
	floor := dsrPath(path{name: pathFloor, about: "the generator alone: XDP_DROP at the gateway", vip: true}, func(_ context.Context, _ *grid, p *path) error {
		return p.openSink("gateway", "veth0", true)
	})
	paths := []*path{
		floor,
		toSink(dsrPath(path{name: pathRouting, about: "the kernel routes, no VIP; dropped by a TCX program"}, nil), false),
		toSink(dsrPath(path{name: pathRoutingXDP, about: "the same; dropped by an XDP program"}, nil), true),
		toSink(dsrPath(path{name: pathDNAT, about: "the kernel translates: iptables; TCX sink", tools: []string{"iptables", "ip6tables"}, vip: true}, setupIptables), false),
	}
	for _, hook := range []string{"xdp", "tcx"} {
		sink := "; " + strings.ToUpper(hook) + " sink"
		paths = append(paths,
			toSink(weirPath("l2dsr", hook, "Weir, MAC address only, on "+hook+sink), hook == "xdp"),
			toSink(weirPath("nat", hook, "Weir translates the VIP, on "+hook+sink), hook == "xdp"),
			toSink(weirPath(modeCID, hook, "Weir reads the backend in DTLS connection ids, on "+hook+sink), hook == "xdp"))
	}
	return paths
}

// toSink drops a path's frames where they arrive at the backend. The gateway's first interface polls, as that of a network
// card does: a veth loses bare frames otherwise.
func toSink(p *path, xdp bool) *path {
	open := p.open
	p.open = func(ctx context.Context, g *grid, p *path) error {
		if err := open(ctx, g, p); err != nil {
			return err
		}
		err := p.Lab.Namespace("gateway").Do(func() error {
			_, err := setGRO("veth0", true)
			return err
		})
		if err != nil {
			return err
		}
		return p.openSink("zone1", "veth3", xdp)
	}
	return p
}

// openSink opens the sink where the path's frames end.
func (p *path) openSink(namespace, device string, xdp bool) (err error) {
	if p.sink, err = openSink(p.Lab.Namespace(namespace), device, xdp); err == nil {
		p.Undo = append(p.Undo, p.sink.close)
	}
	return err
}

// runToSink is one round of one path.
func runToSink(ctx context.Context, g *grid, c *cell, flows int) (round, error) {
	p := c.path
	f, err := newFlood(g, c)
	if err != nil {
		return round{}, err
	}
	f.Live, f.Flows, f.CID = true, flows, p.cid
	start, err := p.sink.sum()
	if err != nil {
		return round{}, err
	}
	byCID, err := p.steeredByCID(ctx)
	if err != nil {
		return round{}, err
	}
	r, err := f.count(ctx, p.sink.sum)
	if err != nil || !p.cid {
		return r, err
	}
	end, bad := p.sink.sum()
	now, err := p.steeredByCID(ctx)
	if err = errors.Join(bad, err); err == nil && now-byCID < end-start {
		err = fmt.Errorf("only %d of %d packets were steered by their connection ids", now-byCID, end-start)
	}
	return r, err
}

// steeredByCID is how many packets Weir has counted as such; 0 on a path without it.
func (p *path) steeredByCID(ctx context.Context) (sum uint64, err error) {
	if !p.cid {
		return 0, nil
	}
	metrics, err := p.Daemons[0].Metrics(ctx)
	for name, value := range metrics {
		if strings.HasPrefix(name, reasonMetric+"{") && strings.Contains(name, `reason="cid"`) {
			sum += uint64(value)
		}
	}
	return sum, err
}
