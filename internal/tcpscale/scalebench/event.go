package scalebench

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-lb/weir/internal/tcpscale"
	"github.com/weir-lb/weir/internal/testbed/programs"
)

// Kinds of events. Those of a backend take another backend each, the last one first.
const (
	KillBackend     = "kill-backend"     // its server processes are killed: its kernel closes what they held
	CutBackend      = "cut-backend"      // its link goes down: silence
	DrainBackend    = "drain-backend"    // no new flows by the balancer, and its server sends its clients away
	RestartBalancer = "restart-balancer" // interrupted, and started again after a while
	KillBalancer    = "kill-balancer"    // killed, and started again after a while
)

// Kinds are those of events, in the order of their flags.
func Kinds() []string {
	return []string{KillBackend, CutBackend, DrainBackend, RestartBalancer, KillBalancer}
}

// Plan is an event to come.
type Plan struct {
	Kind string
	At   time.Duration // since all connections were established
}

func (p *Plan) ofBackend() bool { return strings.HasSuffix(p.Kind, "-backend") }

// events runs a plan during the hold. Its result is to be read once run has returned.
type events struct {
	stage *stage
	plan  []Plan
	done  []Event
	gone  int // backends

	mu    sync.Mutex // of what late reads
	full  time.Time
	begun int           // of the plan
	delay time.Duration // of the last one begun
}

// start begins the plan: all connections were established at that moment.
func (e *events) start(full time.Time) {
	slices.SortStableFunc(e.plan, func(a, b Plan) int { return cmp.Compare(a.At, b.At) })
	e.mu.Lock()
	defer e.mu.Unlock()
	e.full = full
}

// begin notes that the next event of the plan happens now.
func (e *events) begin(now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.delay = max(0, now.Sub(e.full)-e.plan[e.begun].At)
	e.begun++
}

// late is by how much the events are behind their plan, because one took longer than the time until the next. The hold lasts
// that much longer, so that the last event is followed by as much of it as was planned.
func (e *events) late(now time.Time) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.full.IsZero() || e.begun == len(e.plan) {
		return e.delay
	}
	return max(e.delay, now.Sub(e.full)-e.plan[e.begun].At)
}

// run waits for each moment after full, and makes the event.
func (e *events) run(ctx context.Context, full time.Time) error {
	e.start(full)
	for _, p := range e.plan {
		if err := programs.Sleep(ctx, time.Until(full.Add(p.At))); err != nil {
			return nil //nolint:nilerr // the hold is over
		}
		e.begin(time.Now())
		if err := e.make(ctx, p); err != nil && ctx.Err() == nil {
			return fmt.Errorf("%s: %w", p.Kind, err)
		}
	}
	return nil
}

func (e *events) make(ctx context.Context, p Plan) error {
	s := e.stage
	event := Event{Kind: p.Kind}
	before := s.clients.Report()
	event.Before, event.Held = tcpscale.Shares(&before), before.Connections.Established
	if n := len(e.done); n > 0 {
		e.done[n-1].After = event.Before
	}
	index := -1
	if p.ofBackend() {
		e.gone++
		index = len(s.backends) - e.gone
		event.Target = s.backends[index].name
		event.Held = connectionsOf(event.Before, event.Target)
	} else if s.balancer.path.mode == "" {
		event.Skipped = "no program balances on this path"
	}
	if err := s.clients.Mark(ctx, p.Kind+" "+event.Target); err != nil {
		return err
	}
	began := time.Now()
	event.AtSeconds = began.Sub(s.began).Seconds()
	s.say(strings.TrimSpace(fmt.Sprintf("%.0f s: %s %s", event.AtSeconds, p.Kind, event.Target)))
	e.done = append(e.done, event)
	err := e.act(ctx, p.Kind, index, event.Skipped != "")
	e.done[len(e.done)-1].TookSeconds = time.Since(began).Seconds()
	return err
}

func (e *events) act(ctx context.Context, kind string, index int, skip bool) error {
	s := e.stage
	switch {
	case skip:
		return nil
	case kind == KillBackend:
		s.backends[index].end(func(c *tcpscale.ServerGroup) { c.Kill() })
	case kind == CutBackend:
		s.backends[index].cut()
		return s.Lab.Namespace(s.backends[index].name).SetUp("eth0", false)
	case kind == DrainBackend:
		if err := s.balancer.drain(ctx, s.backends[index].name); err != nil {
			return err
		}
		s.backends[index].end(func(c *tcpscale.ServerGroup) { c.Drain() })
	default:
		return s.balancer.again(ctx, kind == KillBalancer, s.via.Away)
	}
	return nil
}

func connectionsOf(shares []tcpscale.Peer, id string) int {
	for _, p := range shares {
		if p.ID == id {
			return p.Connections
		}
	}
	return 0
}

// account fills the events from the clients' last report. unexplained are losses that no event explains.
func account(done []Event, client *tcpscale.Report) (unexplained uint64) {
	unexplained = client.Totals.Lost
	gone := map[string]int{} // backend -> its event
	for i := range done {
		e := &done[i]
		if e.Target != "" {
			gone[e.Target] = i
		}
		if i >= len(client.Marks) {
			break
		}
		m := &client.Marks[i]
		e.Moved, e.Kinds, e.LostAfter, e.BackAfter, e.AllBack = m.Moved, m.Kinds, m.LostAfter, m.BackAfter, m.Full
		for peer, n := range m.LostBy {
			if by, ok := gone[peer]; ok && done[by].Kind != DrainBackend {
				done[by].Lost += n
				unexplained -= min(n, unexplained)
			} else {
				e.LostOthers += n
			}
		}
	}
	if n := len(done); n > 0 {
		done[n-1].After = tcpscale.Shares(client)
	}
	return unexplained
}
