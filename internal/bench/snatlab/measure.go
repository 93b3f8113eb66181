package snatlab

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/snat"
	"github.com/weir-lb/weir/internal/tcpscale"
	"github.com/weir-lb/weir/internal/testbed/programs"
)

const (
	look      = 500 * time.Millisecond
	quiet     = 3 * time.Second   // least time without any change
	connect   = 3 * time.Second   // time-out of an attempt; its SYN is sent again after 1 s
	enough    = 2 * connect       // of the plan's count: each SYN of then was given up, and its like sent once more
	shortfall = 30 * time.Second  // of a count that is not the plan's
	atMost    = 150 * time.Second // while nothing changes
	hardest   = 10 * time.Minute  // while it does: a machine that is this slow comes to no count
)

// measure builds the layout, offers the scenario's connections and counts until nothing changes. tick may be nil.
func (c *Config) measure(ctx context.Context, l *layout, tick func(held int)) (_ *Measured, err error) {
	topology := l.topology()
	stage, err := programs.OpenStage(c.Binary, &topology)
	if err != nil {
		return nil, err
	}
	run := &run{Stage: stage, layout: l, launcher: c.Launcher, tick: tick}
	defer func() { err = errors.Join(err, run.close()) }()
	if err := run.applyKernel(ctx); err != nil {
		return nil, err
	}
	if l.weir {
		if err := run.startWeir(ctx); err != nil {
			return nil, err
		}
	}
	if err := run.start(); err != nil {
		return nil, err
	}
	return run.watch(ctx)
}

// run is a measurement under way.
type run struct {
	*programs.Stage
	layout   *layout
	launcher tcpscale.Launcher
	tick     func(int)
	weir     *programs.Daemon // nil: the kernel translates
	server   *tcpscale.ServerGroup
	groups   []*tcpscale.Group // of replicas
}

func (r *run) at(namespace string) tcpscale.Launcher {
	return tcpscale.Launcher{Command: r.launcher.Command, Do: r.Lab.Namespace(namespace).Do}
}

// start starts the server's and all replicas' processes.
func (r *run) start() error {
	files, err := tcpscale.RaiseFiles()
	if err != nil {
		return err
	}
	s, l := r.layout.scenario, r.layout
	demand := int(l.plan.Demand)
	r.server, err = tcpscale.StartServer(r.at(serverHost), tcpscale.ServerConfig{Listen: l.servers(), ID: serverHost, Backlog: 65535},
		tcpscale.WorkersFor(demand+demand/25, files)) // the kernel's spread is not quite even
	if err != nil {
		return fmt.Errorf("server: %w", err)
	}
	id := rand.Uint64()
	for node := range s.Nodes {
		for replica := range l.replicas(node) {
			base := tcpscale.ClientConfig{
				Run: id, ID: fmt.Sprintf("node%d-replica%d", node, replica), Targets: l.targets(node), Sources: l.pods(node, replica), Connections: int(s.Connections),
				InFlight: 2048, Heartbeat: 30 * time.Second, Misses: 3, Timeout: connect, BackoffMin: 500 * time.Millisecond, BackoffMax: 2 * time.Second,
			}
			workers := tcpscale.WorkersFor(base.Connections, files)
			configs := make([]tcpscale.WorkerConfig, workers)
			for i := range configs {
				one := base
				one.Worker, one.Client = i, uint32(len(r.groups)<<8|i)
				one.Connections = base.Connections*(i+1)/workers - base.Connections*i/workers
				configs[i].Client = &one
			}
			group, err := tcpscale.StartGroup(r.at(fmt.Sprint("node", node)), configs)
			if err != nil {
				return fmt.Errorf("%s: %w", base.ID, err)
			}
			r.groups = append(r.groups, group)
		}
	}
	return nil
}

func (r *run) close() error {
	for _, group := range r.groups {
		group.Kill()
	}
	if r.server != nil {
		r.server.Close()
	}
	return r.Close()
}

// watch looks until the count is final.
func (r *run) watch(ctx context.Context) (*Measured, error) {
	s, plan := r.layout.scenario, r.layout.plan
	m := &Measured{Offered: int(plan.Demand)}
	ports := int(r.layout.kinds[snat.Ephemeral].PerKey)
	finder := tcpscale.Finder{Quiet: quiet, Ports: ports, Tuples: s.Replicas * r.layout.podAddresses() * s.Destinations}
	began := time.Now()
	changed, failedThen := began, uint64(0)
	var plateau *tcpscale.Plateau
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(look):
		}
		client, server, err := r.reports()
		if err != nil {
			return nil, err
		}
		now := time.Now()
		held := client.Connections.Established
		if held != m.Held {
			changed, failedThen = now, client.Totals.Failed
			m.Seconds = now.Sub(began).Seconds()
		}
		m.Held, m.Server, m.Failures = held, server.Connections.Established, client.Failures
		m.History = append(m.History, v1.SNATLabPoint{Seconds: now.Sub(began).Seconds(), Held: held})
		plateau = finder.Watch(now.Sub(began), &client)
		if r.tick != nil {
			r.tick(held)
		}
		if err := r.countExhausted(ctx, m); err != nil {
			return nil, err
		}
		if r.silent() > quiet {
			changed = now // a worker that is busy in the kernel, or is not scheduled, may hold more by now
		}
		refused := client.Totals.Failed - failedThen
		lasted, stood := now.Sub(began), now.Sub(changed)
		if lasted > hardest || lasted > atMost && stood > quiet || r.final(m, stood, refused, plateau) {
			break
		}
	}
	for _, group := range r.groups {
		report := group.Report()
		m.Replicas = append(m.Replicas, report.Connections.Established)
	}
	if plateau != nil {
		m.Ceiling, m.CeilingAt = plateau.Ceiling, plateau.At
	}
	return m, nil
}

// final reports whether a count that stood so long, while so many attempts were refused, is one.
func (r *run) final(m *Measured, stood time.Duration, refused uint64, plateau *tcpscale.Plateau) bool {
	missing := m.Offered - m.Held
	switch {
	case stood < quiet || m.Server != m.Held && stood < shortfall:
		return false
	case missing == 0:
		return true
	case plateau == nil:
		return false
	case int64(m.Held) != r.layout.plan.Holds || refused == 0: // or nothing tells yet what keeps the others out
		return stood >= shortfall
	}
	return refused >= uint64(missing) || stood >= enough
}

// silent is for how long the client that reported longest ago has not reported.
func (r *run) silent() (longest time.Duration) {
	for _, group := range r.groups {
		longest = max(longest, group.Silent())
	}
	return longest
}

// reports are what all clients and the server have done so far.
func (r *run) reports() (client, server tcpscale.Report, err error) {
	var all []tcpscale.Report
	for _, group := range r.groups {
		err = errors.Join(err, group.Err())
		all = append(all, group.Report())
	}
	err = errors.Join(err, r.server.Err())
	return tcpscale.MergeReports(all), r.server.Report(), err
}

func (r *run) countExhausted(ctx context.Context, m *Measured) (err error) {
	if r.weir == nil {
		return nil
	}
	m.Exhausted, err = r.exhausted(ctx)
	return err
}
