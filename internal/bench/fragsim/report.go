package fragsim

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/weir-lb/weir/internal/testbed/plot"
)

// WriteReport writes the runs, the advice and the curves as one HTML page.
// when is the date on it. The error is the writer's.
func WriteReport(w io.Writer, c Config, results []Result, a Advice, curves Curves, command string, when time.Time) error {
	mean := Mean(results)
	report := plot.Report{
		Title: "weir sim fragments", When: when, OK: mean.Rejected == 0,
		Verdict: Verdict(c, mean),
		Facts: []plot.Fact{
			{Name: "alive on average", Value: fmt.Sprintf("%.0f", a.Live)},
			{Name: "entries", Value: fmt.Sprint(c.Size + c.Buckets)},
			{Name: "loss", Value: fmt.Sprintf("%.2f %%", mean.PercentLoss)},
			{Name: "Weir needs, entries", Value: fmt.Sprint(a.WeirEntries)},
			{Name: "nfqlb needs, size and buckets", Value: nfqlbAdvice(a)},
		},
		Figures: []plot.Figure{
			chart("Loss over table size", fmt.Sprintf("%d datagrams/s, ttl %v; entries are size + buckets, both equal. Below %.0f entries Weir's table shortens its memory, down to half the ttl.", c.Rate, c.TTL, c.live()), "entries", curves.OverSize),
			chart("Loss over rate", fmt.Sprintf("size %d, buckets %d, ttl %v.", c.Size, c.Buckets, c.TTL), "datagrams/s", curves.OverRate),
		},
		Method: command,
	}
	table := plot.Table{Title: fmt.Sprintf("Runs, table %s", c.Table), Header: []string{"run"}}
	for _, field := range lossFirst(mean) {
		table.Header = append(table.Header, field[0])
	}
	rows := append([]Result{mean}, results[:min(len(results), 100)]...)
	for i, r := range rows {
		name := "mean"
		if i > 0 {
			name = fmt.Sprint(i)
		}
		row := []string{name}
		for _, field := range lossFirst(r) {
			row = append(row, field[1])
		}
		table.Rows = append(table.Rows, row)
	}
	report.Tables = []plot.Table{table}
	return report.WriteHTML(w)
}

func chart(title, note, x string, curves []Curve) plot.Chart {
	c := plot.Chart{Title: title, Note: note, XLabel: x, YLabel: "% lost"}
	for _, curve := range curves {
		s := plot.Series{Name: curve.Name}
		for _, p := range curve.Points {
			s.X, s.Y = append(s.X, p.At), append(s.Y, p.PercentLoss)
		}
		c.Series = append(c.Series, s)
	}
	return c
}

// Verdict is what a mean says, in one sentence.
func Verdict(c Config, mean Result) string {
	entries, live := c.Size+c.Buckets, c.live()
	switch {
	case mean.Rejected > 0:
		return fmt.Sprintf("The %s table with %d entries loses %.2f %% of %d datagrams/s; %.0f are alive at a time.", c.Table, entries, mean.PercentLoss, c.Rate, live)
	case mean.Early > 0:
		return fmt.Sprintf("The %s table with %d entries loses nothing, but is full: %.2f %% of the datagrams are forgotten in the second half of their ttl.", c.Table, entries, 100*float64(mean.Early)/float64(mean.Inserts))
	}
	return fmt.Sprintf("The %s table with %d entries loses nothing of %d datagrams/s; %.0f are alive at a time.", c.Table, entries, c.Rate, live)
}

func nfqlbAdvice(a Advice) string {
	if a.NFQLBSize == 0 {
		return fmt.Sprintf("none up to %d", a.NFQLBTried)
	}
	return fmt.Sprint(a.NFQLBSize)
}

// Text is the advice for people.
func AdviceText(a Advice) string {
	text := fmt.Sprintf("%.0f datagrams are alive on average.\n  Weir:  limits.fragments: %d\n", a.Live, a.WeirEntries)
	if a.NFQLBSize == 0 {
		return text + fmt.Sprintf("  nfqlb: no prime up to %d is without loss\n", a.NFQLBTried)
	}
	return text + fmt.Sprintf("  nfqlb: --ft_size=%d --ft_buckets=%d (the smallest prime without loss; its neighbours may lose most)\n", a.NFQLBSize, a.NFQLBSize)
}

// fields are the names and values of a result in the order of nfqlb's simulator.
func fields(r Result) [][2]string {
	return [][2]string{
		{"ttlMillis", fmt.Sprint(r.TTLMillis)},
		{"size", fmt.Sprint(r.Size)},
		{"active", fmt.Sprint(r.Active)},
		{"collisions", fmt.Sprint(r.Collisions)},
		{"inserts", fmt.Sprint(r.Inserts)},
		{"rejected", fmt.Sprint(r.Rejected)},
		{"lookups", fmt.Sprint(r.Lookups)},
		{"objGC", fmt.Sprint(r.ObjGC)},
		{"bucketsMax", fmt.Sprint(r.BucketsMax)},
		{"bucketsPeak", fmt.Sprint(r.BucketsPeak)},
		{"bucketsStale", fmt.Sprint(r.BucketsStale)},
		{"early", fmt.Sprint(r.Early)},
		{"percentLoss", fmt.Sprintf("%.2f", r.PercentLoss)},
	}
}

// lossFirst is fields with the loss, which is what the page is about, where a narrow window does not cut it off.
func lossFirst(r Result) [][2]string {
	all := fields(r)
	last := len(all) - 1
	return slices.Concat(all[last:], all[:last])
}

// WriteTable writes one line per run and, of several, their mean.
func WriteTable(w io.Writer, results []Result) error {
	rows := results
	if len(results) > 1 {
		rows = append(rows[:len(rows):len(rows)], Mean(results))
	}
	for i, r := range rows {
		head, line := "run", fmt.Sprint(i+1)
		if i == len(results) {
			line = "mean"
		}
		for _, f := range fields(r) {
			head += "\t" + f[0]
			line += "\t" + f[1]
		}
		if i == 0 {
			if _, err := fmt.Fprintln(w, head+"\t"); err != nil {
				return err
			}
		}
		if _, err := fmt.Fprintln(w, line+"\t"); err != nil {
			return err
		}
	}
	return nil
}
