package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/procstat"
)

// kubeLoad is the sessions of a run.
type kubeLoad struct {
	udp, tcp flowLoad
	dtls     *coapLoad
	turn     []*generator
	working  sync.WaitGroup
	cancel   context.CancelFunc

	mu    sync.Mutex
	calls turnCounts // of all allocations
	idle  int        // allocations that carried nothing in a phase
	err   error      // why an allocation's load ended
}

// kubeCount is what the sessions have lost so far, and what they have done.
type kubeCount struct {
	udp, tcp flowCounts
	dtls     v1.CoAPBenchStats
	calls    turnCounts
	idle     int
}

const flowInterval = 500 * time.Millisecond

// startLoad opens all sessions.
func (k *kubeSessions) startLoad() (err error) {
	ctx, cancel := context.WithCancel(k.ctx)
	to, host, quarter := netip.AddrPortFrom(k.vip, 7000), k.Host(kubeClient), k.config.Flows/4
	l := &kubeLoad{
		cancel: cancel,
		udp:    flowLoad{host: host, to: to, keep: quarter, interval: flowInterval},
		tcp:    flowLoad{host: host, to: to, keep: quarter, interval: flowInterval, stream: true},
	}
	k.load = l
	k.config.progress(0.1, "%d flows, %d allocations", k.config.Flows, k.config.Allocations)
	if err := errors.Join(l.udp.start(ctx), l.tcp.start(ctx)); err != nil {
		l.stop()
		return err
	}
	clients := strconv.Itoa(k.config.Flows - 2*quarter)
	if l.dtls, err = startCoapLoad(k.Stage, kubeClient, fmt.Sprintf("coaps://%s:5684/benchmark?rlen=40", k.vip), "--clients", clients, "--workers", "1",
		"--interval", flowInterval.String(), "--rebind-every", "5s", "--duration", "47h", "--progress", "json"); err == nil {
		err = l.dtls.started(k.ctx)
	}
	if err == nil && k.config.Allocations > 0 {
		err = k.startCalls(ctx)
	}
	if err != nil {
		l.stop()
	}
	return err
}

// startCalls makes the allocations, evenly at all TURN gateways, and sends over each of them all the time.
func (k *kubeSessions) startCalls(ctx context.Context) error {
	pods, err := k.turnPods()
	if err != nil || len(pods) == 0 {
		return fmt.Errorf("%d TURN gateways: %w", len(pods), err)
	}
	for i, pod := range pods {
		n := k.config.Allocations / len(pods)
		if i < k.config.Allocations%len(pods) {
			n++
		}
		server := netip.AddrPortFrom(netip.MustParseAddr(pod), 3478)
		args := turnClients(server, n, netip.AddrPortFrom(netip.MustParseAddr("10.78.0.2"), 0), nil)
		g, err := startGenerator(k.ctx, k.Running, k.Host(kubeClient), k.Binary, args...)
		if err != nil {
			return fmt.Errorf("allocations at %s: %w%s", pod, err, k.pods())
		}
		k.load.turn = append(k.load.turn, g)
		k.load.working.Go(func() { k.load.call(ctx, g, n) })
	}
	return nil
}

// call sends over allocations in phases of one datagram of each, until ctx ends.
func (l *kubeLoad) call(ctx context.Context, g *generator, n int) {
	for ctx.Err() == nil {
		report, err := g.phase(context.WithoutCancel(ctx), trafficPhase{Rate: 2 * float64(n), Duration: time.Second, Direction: DirectionUp, Silence: turnSilence})
		l.mu.Lock()
		if err != nil {
			l.err = err
			l.mu.Unlock()
			return
		}
		for _, flow := range report.Up.Connections {
			l.calls.sent += flow.Sent
			l.calls.lost += flow.Lost
			if flow.Sent > 0 && flow.Received == 0 {
				l.idle++
			}
		}
		l.calls.refused += uint64(len(report.Problems))
		l.mu.Unlock()
	}
}

func (l *flowLoad) now() flowCounts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts
}

// count reads what has happened so far.
func (l *kubeLoad) count() (c kubeCount, err error) {
	c.udp, c.tcp = l.udp.now(), l.tcp.now()
	if taken := l.dtls.taken(); len(taken) > 0 {
		c.dtls = taken[len(taken)-1].Total
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c.calls, c.idle = l.calls, l.idle
	return c, errors.Join(l.err, l.dtls.failure())
}

// stop ends all sessions.
func (l *kubeLoad) stop() {
	l.cancel()
	l.working.Wait()
	for _, g := range l.turn {
		g.end(false)
	}
	if l.dtls != nil {
		l.dtls.stop()
	}
	l.udp.stop()
	l.tcp.stop()
}

// settle is how long after an event what it did is counted: each session has sent some times, and what is under way has come or is lost.
const settle = 2 * time.Second

// run lets the events happen, one after the other.
func (k *kubeSessions) run() (results []*measure.Result, err error) {
	var events []kubeEvent
	for _, e := range kubeEvents() {
		if wanted(k.config.Events, e.name) && (!e.turn || k.config.Allocations > 0) {
			events = append(events, e)
		}
	}
	for i, e := range events {
		k.config.progress(0.2+0.8*float64(i)/float64(len(events)), "%s", e.name)
		before, err := k.load.count()
		if err != nil {
			return nil, err
		}
		r := &measure.Result{Scenario: scenarioKubeSessions, Path: e.name, Machine: machine(), Started: time.Now(), LoadBefore: procstat.LoadAverage(), Parameters: map[string]string{
			paramAbout: e.about, "flows": strconv.Itoa(k.config.Flows), "allocations": strconv.Itoa(k.config.Allocations), "gone": k.config.Gone.String(),
		}}
		happened := e.happen(k)
		took := time.Since(r.Started)
		served := k.settled()
		after, err := k.load.count()
		if err != nil {
			return nil, err
		}
		r.Elapsed, r.LoadAfter = time.Since(r.Started), procstat.LoadAverage()
		k.judge(r, before, after, took, happened, served)
		results = append(results, r)
		if k.ctx.Err() != nil {
			return nil, k.ctx.Err()
		}
	}
	return results, nil
}

// settled waits until what an event did can be counted, and opens new flows.
func (k *kubeSessions) settled() error {
	wait := max(k.config.Every, settle)
	select {
	case <-time.After(wait):
	case <-k.ctx.Done():
		return k.ctx.Err()
	}
	return errors.Join(k.tryFlows(5), k.Failure())
}
