package explain

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/weir-lb/weir/internal/steering/replay"
	"github.com/weir-lb/weir/internal/terminal"
)

func printSteps(w io.Writer, rows []replay.Row) error {
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

func toBackend(r *replay.Row) string {
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

func printTable(w io.Writer, t *replay.Tracer) error {
	table := terminal.NewTable(w, false)
	fmt.Fprintln(table, "NO\tTIME\tACTION\tREASON\tBACKEND\tFLOW")
	for i := range t.Rows {
		r := &t.Rows[i]
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
	for _, n := range t.Summary.Reasons {
		decided += n
	}
	if more := decided - len(t.Rows); more > 0 {
		fmt.Fprintf(table, "and %d more (--limit)\n", more)
	}
	fmt.Fprintf(table, "\n%d packets\n", t.Summary.Packets)
	for _, counts := range []struct {
		title string
		of    map[string]int
	}{{"REASON", t.Summary.Reasons}, {"BACKEND", t.Summary.Backends}} {
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
	tracer *replay.Tracer
	next   time.Time
}

func newProgressReader(ctx context.Context, in io.Reader, to io.Writer, t *replay.Tracer) *progressReader {
	return &progressReader{ctx: ctx, in: bufio.NewReaderSize(in, 1<<16), to: to, tracer: t, next: time.Now().Add(2 * time.Second)}
}

func (r *progressReader) Read(b []byte) (int, error) {
	if r.ctx != nil && r.ctx.Err() != nil {
		return 0, r.ctx.Err()
	}
	if now := time.Now(); now.After(r.next) {
		r.next = now.Add(2 * time.Second)
		fmt.Fprintf(r.to, "%d packets\n", r.tracer.Summary.Packets)
	}
	return r.in.Read(b)
}
