package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/packet"
	"github.com/weir-lb/weir/internal/steering/steer"
	"github.com/weir-lb/weir/internal/terminal"
)

// tracer runs packets through an engine and notes what became of each.
type tracer struct {
	engine  *steer.Engine
	held    map[flow.FragmentKey][]heldPacket // early fragments, as a data path holds them
	limit   int                               // rows kept; negative: all
	rows    []traced
	summary traceSummary
	number  int
	start   time.Duration // time of a capture's first packet
	now     time.Duration
}

type heldPacket struct {
	number int
	data   []byte
	at     time.Duration
}

// traced is one packet's row.
type traced = v1.ExplainedPacket

// traceSummary counts decisions.
type traceSummary = v1.ExplainSummary

func newTracer(snapshot *lb.Snapshot) *tracer {
	return &tracer{
		engine: steer.New(snapshot, steer.Options{}), limit: -1, held: map[flow.FragmentKey][]heldPacket{},
		summary: traceSummary{Reasons: map[string]int{}, Backends: map[string]int{}},
	}
}

// text gives the packets that a line describes.
func (t *tracer) text(line string) error {
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

// captured gives one packet of a capture. Time never goes back, whatever the capture says.
func (t *tracer) captured(c packet.Captured) {
	if t.number == 0 {
		t.start = c.Time
	}
	t.now = max(t.now, c.Time-t.start)
	var p packet.Packet
	t.packet(&p, packet.ParseCaptured(c, &p))
}

func (t *tracer) packet(p *packet.Packet, err error) {
	t.number++
	t.summary.Packets++
	t.steer(t.number, p, err, t.now)
	if err == nil && p.First {
		t.release(p.Fragment)
	}
}

// release gives the fragments that waited for the first one.
func (t *tracer) release(k flow.FragmentKey) {
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

func (t *tracer) steer(number int, p *packet.Packet, err error, now time.Duration) {
	var d steer.Decision
	switch {
	case err == nil:
		d = t.engine.Packet(p, now)
	case errors.Is(err, packet.ErrNotIP):
		d = t.engine.NotIP()
	default:
		d = t.engine.Malformed()
	}
	row := traced{Number: number, Action: d.Action.String(), Reason: d.Reason.String(), Mark: d.Mark}
	if d.Rule != nil {
		row.Rule = d.Rule.Name
	}
	if d.Member != nil {
		row.Member = d.Member.Name
		t.summary.Backends["tier/"+row.Member]++
	}
	if d.Service != nil {
		row.Service = d.Service.Name
	}
	if d.Backend != nil {
		row.Backend = d.Backend.Name
		t.summary.Backends[row.Service+"/"+row.Backend]++
	}
	t.summary.Reasons[row.Reason]++
	if d.Action == lb.Hold {
		t.hold(number, p, now)
	}
	if t.limit >= 0 && len(t.rows) >= t.limit {
		return
	}
	if t.limit >= 0 {
		at := now.Seconds()
		row.Time = &at
	}
	if err != nil {
		row.Why = []string{err.Error()}
	} else {
		row.Flow, row.Kind = flowText(p), p.Kind.String()
		row.Why = t.engine.Why(p, d)
	}
	t.rows = append(t.rows, row)
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
func (t *tracer) hold(number int, p *packet.Packet, now time.Duration) {
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

func printSteps(w io.Writer, rows []traced) error {
	out := bufio.NewWriter(w)
	for i := range rows {
		r := &rows[i]
		if i > 0 {
			fmt.Fprintln(out)
		}
		fmt.Fprintf(out, "%d  %s\n", r.Number, cmp.Or(r.Flow, "(no IP packet that can be read)"))
		fmt.Fprintf(out, "   %s%s, reason %s\n", r.Action, toBackend(r), r.Reason)
		for _, step := range r.Why {
			fmt.Fprintf(out, "   - %s\n", step)
		}
	}
	return out.Flush()
}

func toBackend(r *traced) string {
	switch {
	case r.Backend != "":
		return " " + r.Service + "/" + r.Backend
	case r.Member != "":
		return " to the tier's " + r.Member
	case r.Service != "":
		return " " + r.Service
	}
	return ""
}

func printTable(w io.Writer, t *tracer) error {
	table := terminal.NewTable(w, false)
	fmt.Fprintln(table, "NO\tTIME\tACTION\tREASON\tBACKEND\tFLOW")
	for i := range t.rows {
		r := &t.rows[i]
		to := "-"
		if r.Backend != "" {
			to = r.Service + "/" + r.Backend
		}
		at := "-"
		if r.Time != nil {
			at = fmt.Sprintf("%.6f", *r.Time)
		}
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\t%s\n", r.Number, at, r.Action, r.Reason, to, r.Flow)
	}
	decided := 0
	for _, n := range t.summary.Reasons {
		decided += n
	}
	if more := decided - len(t.rows); more > 0 {
		fmt.Fprintf(table, "and %d more (--limit)\n", more)
	}
	fmt.Fprintf(table, "\n%d packets\n", t.summary.Packets)
	for _, counts := range []struct {
		title string
		of    map[string]int
	}{{"REASON", t.summary.Reasons}, {"BACKEND", t.summary.Backends}} {
		if len(counts.of) == 0 {
			continue
		}
		fmt.Fprintf(table, "\n%s\tPACKETS\n", counts.title)
		for _, name := range slices.SortedFunc(maps.Keys(counts.of), func(a, b string) int {
			return cmp.Or(cmp.Compare(counts.of[b], counts.of[a]), cmp.Compare(a, b))
		}) {
			fmt.Fprintf(table, "%s\t%d\n", name, counts.of[name])
		}
	}
	return table.Flush()
}

// progressReader reads a capture, ends when the command is interrupted, and says every two seconds how far it is.
type progressReader struct {
	ctx    context.Context
	in     *bufio.Reader
	to     io.Writer
	tracer *tracer
	next   time.Time
}

func newProgressReader(ctx context.Context, in io.Reader, to io.Writer, t *tracer) *progressReader {
	return &progressReader{ctx: ctx, in: bufio.NewReaderSize(in, 1<<16), to: to, tracer: t, next: time.Now().Add(2 * time.Second)}
}

func (r *progressReader) Read(b []byte) (int, error) {
	if r.ctx != nil && r.ctx.Err() != nil {
		return 0, r.ctx.Err()
	}
	if now := time.Now(); now.After(r.next) {
		r.next = now.Add(2 * time.Second)
		fmt.Fprintf(r.to, "%d packets\n", r.tracer.summary.Packets)
	}
	return r.in.Read(b)
}
