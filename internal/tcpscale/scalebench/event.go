package scalebench

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-lb/weir/internal/tcpscale"
	"github.com/weir-lb/weir/internal/testbed/measure"
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

// Event is one that has been. A loss belongs to it if the connection was with the backend that went; all others count as
// unexplained, as nothing else that happens here may cost a connection.
type Event struct {
	Kind        string            `json:"kind"`
	Target      string            `json:"target,omitempty"` // backend
	Skipped     string            `json:"skipped,omitempty"`
	AtSeconds   float64           `json:"at_s"`        // on the time axis of history
	TookSeconds float64           `json:"took_s"`      // until it was done: the balancer back at work, the backend empty
	Held        int               `json:"held"`        // connections that the target held, or all
	Lost        uint64            `json:"lost"`        // by the event
	LostOthers  uint64            `json:"lost_others"` // unexplained, between this event and the next
	Moved       uint64            `json:"moved"`       // sent away in order
	Kinds       map[string]uint64 `json:"failures"`    // of all that were lost until the next event
	LostAfter   *measure.Latency  `json:"lost_after"`  // since the event
	BackAfter   *measure.Latency  `json:"back_after"`  // established again, since the event
	AllBack     float64           `json:"all_back_s"`  // since the event; 0: nothing had gone, or not all came back
	Before      []tcpscale.Peer   `json:"before"`      // the clients' distribution
	After       []tcpscale.Peer   `json:"after"`       // at the next event, or at the end
}

// events runs a plan during the hold. Its result is to be read once run has returned.
type events struct {
	stage *stage
	plan  []Plan
	done  []Event
	gone  int // backends
}

// run waits for each moment after full, and makes the event.
func (e *events) run(ctx context.Context, full time.Time) error {
	slices.SortStableFunc(e.plan, func(a, b Plan) int { return cmp.Compare(a.At, b.At) })
	for _, p := range e.plan {
		if err := wait(ctx, time.Until(full.Add(p.At))); err != nil {
			return nil //nolint:nilerr // the hold is over
		}
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
	event.Before, event.Held = before.Shares(), before.Connections.Established
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
		done[n-1].After = client.Shares()
	}
	return unexplained
}
