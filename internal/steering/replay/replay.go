package replay

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/packet"
	"github.com/weir-lb/weir/internal/steering/steer"
)

// Tracer runs packets through an engine and notes what became of each.
type Tracer struct {
	engine  *steer.Engine
	held    map[flow.FragmentKey][]heldPacket // early fragments, as a data path holds them
	Limit   int                               // rows kept; negative: all
	Rows    []Row
	Summary Summary
	number  int
	start   time.Duration // time of a capture's first packet
	now     time.Duration
}

type heldPacket struct {
	number int
	data   []byte
	at     time.Duration
}

// Row is what became of one packet.
type Row = v1.ExplainedPacket

// Summary counts decisions.
type Summary = v1.ExplainSummary

// New is a tracer that keeps the rows of all packets. Set Limit before the first one; a limit is for a capture, whose rows have times.
func New(snapshot *lb.Snapshot) *Tracer {
	return &Tracer{
		engine: steer.New(snapshot, steer.Options{}), Limit: -1, held: map[flow.FragmentKey][]heldPacket{},
		Summary: Summary{Reasons: map[string]int{}, Backends: map[string]int{}},
	}
}

// Text gives the packets that a line describes.
func (t *Tracer) Text(line string) error {
	described, err := packet.ParseText(line)
	if err != nil {
		return err
	}
	for _, data := range described.Packets {
		var p packet.Packet
		parse := packet.Parse
		if described.Frame {
			parse = packet.ParseFrame
		}
		t.packet(&p, parse(data, &p))
	}
	return nil
}

// Captured gives one packet of a capture. Time never goes back, whatever the capture says.
func (t *Tracer) Captured(c packet.Captured) {
	if t.number == 0 {
		t.start = c.Time
	}
	t.now = max(t.now, c.Time-t.start)
	var p packet.Packet
	t.packet(&p, packet.ParseCaptured(c, &p))
}

func (t *Tracer) packet(p *packet.Packet, err error) {
	t.number++
	t.Summary.Packets++
	t.steer(t.number, p, err, t.now)
	if err == nil && p.First {
		t.release(p.Fragment)
	}
}

// release gives the fragments that waited for the first one.
func (t *Tracer) release(k flow.FragmentKey) {
	waiting := t.held[k]
	delete(t.held, k)
	ttl := t.engine.Snapshot().Limits.FragmentTTL
	for _, h := range waiting {
		if h.at+ttl > t.now {
			var p packet.Packet
			t.steer(h.number, &p, packet.Parse(h.data, &p), t.now)
		}
	}
}

func (t *Tracer) steer(number int, p *packet.Packet, err error, now time.Duration) {
	var d steer.Decision
	switch {
	case err == nil:
		d = t.engine.Packet(p, now)
	case errors.Is(err, packet.ErrNotIP):
		d = t.engine.NotIP()
	default:
		d = t.engine.Malformed()
	}
	row := Row{Number: number, Action: d.Action.String(), Reason: d.Reason.String(), Mark: d.Mark}
	if d.Rule != nil {
		row.Rule = d.Rule.Name
	}
	if d.Member != nil {
		row.Member = d.Member.Name
		t.Summary.Backends["tier/"+row.Member]++
	}
	if d.Service != nil {
		row.Service = d.Service.Name
	}
	if d.Backend != nil {
		row.Backend = d.Backend.Name
		t.Summary.Backends[row.Service+"/"+row.Backend]++
	}
	t.Summary.Reasons[row.Reason]++
	if d.Action == lb.Hold {
		t.hold(number, p, now)
	}
	if t.Limit >= 0 && len(t.Rows) >= t.Limit {
		return
	}
	if t.Limit >= 0 {
		at := now.Seconds()
		row.Time = &at
	}
	if err != nil {
		row.Why = []string{err.Error()}
	} else {
		row.Flow, row.Kind = flowText(p), p.Kind.String()
		row.Why = t.engine.Why(p, d)
	}
	t.Rows = append(t.Rows, row)
}

// flowText names a packet's flow, without ports where it has none.
func flowText(p *packet.Packet) string {
	text := fmt.Sprintf("%s %s > %s", flow.ProtocolName(p.Proto), p.Key.Source().Addr(), p.Key.Destination().Addr())
	switch {
	case p.Later:
		return fmt.Sprintf("%s fragment of id %d", text, p.Fragment.ID)
	case p.Kind == packet.KindEcho:
		return fmt.Sprintf("%s ident %d", text, p.Key.SrcPort)
	case p.Kind == packet.KindICMPError:
		return "icmp error about " + p.Key.Reverse().String()
	case p.Kind == packet.KindOther || p.Kind == packet.KindICMPOther:
		return text
	}
	return p.Key.String()
}

// hold keeps a fragment. The engine bounds how many wait; those whose time is
// over are swept once they could be as many again.
func (t *Tracer) hold(number int, p *packet.Packet, now time.Duration) {
	limits := t.engine.Snapshot().Limits
	if len(t.held) > 2*limits.HeldFragments {
		for k, waiting := range t.held {
			if waiting[len(waiting)-1].at+limits.FragmentTTL <= now {
				delete(t.held, k)
			}
		}
	}
	t.held[p.Fragment] = append(t.held[p.Fragment], heldPacket{number, slices.Clone(p.Data), now})
}
