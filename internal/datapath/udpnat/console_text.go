package udpnat

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/weir-lb/weir/internal/steering/lb"
)

func (c *Console) info(context.Context, []string) (string, error) {
	stats := c.datapath.Stats()
	return stats.Info(), nil
}

// Info returns the summary in the format of cf-nat.
func (s *Stats) Info() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d NAT entries, reverse address update %s.\n", s.Entries, onOff(s.Reverse))
	active, stale := 0, 0
	for i := range s.Backends {
		if s.Backends[i].State == Active {
			active++
		} else {
			stale++
		}
	}
	fmt.Fprintf(&b, "%d destinations", active)
	if stale > 0 {
		fmt.Fprintf(&b, ", %d stale destinations", stale)
	}
	b.WriteString(".")
	for i := range s.Backends {
		backend := &s.Backends[i]
		b.WriteString("\n")
		switch backend.State {
		case Active:
			fmt.Fprintf(&b, "Destination: %s, usage: %d", backend.Name, backend.Entries)
			if backend.Override == lb.Draining {
				b.WriteString(", draining")
			} else if backend.Override == lb.Down {
				b.WriteString(", down")
			}
		default:
			state := backend.State.String()
			fmt.Fprintf(&b, "%s%s destination: %s, usage: %d", strings.ToUpper(state[:1]), state[1:], backend.Name, backend.Entries)
		}
		if backend.State != Active || backend.Silent > time.Second {
			fmt.Fprintf(&b, ", last reply: %s", ago(backend.LastReply))
		}
	}
	return b.String()
}

func ago(d time.Duration) string {
	if d < 0 {
		return "never"
	}
	return seconds(d) + " ago"
}

// rows returns the names and values of the counters that are not 0, and the reasons for undecided datagrams.
func (s *Stats) rows() [][2]string {
	c := &s.Counters
	var rows [][2]string
	for _, row := range []struct {
		name  string
		value uint64
	}{
		{"received", c.Received},
		{"forwarded", c.Forwarded},
		{"forwarded bytes", c.ForwardedBytes},
		{"backwarded", c.Backwarded},
		{"backwarded bytes", c.BackwardedBytes},
		{"in the kernel, forwarded", c.OffloadForwarded},
		{"in the kernel, backwarded", c.OffloadBackwarded},
		{"no DTLS, filtered", c.Filtered},
		{"lost forward", c.LostForward},
		{"lost backward", c.LostBackward},
		{"too long", c.TooLong},
		{"truncated", c.Truncated},
		{"reordered", c.Reordered},
		{"not reordered, no room", c.HeldFull},
		{"wrong routed", c.WrongRouted},
		{"moved by reverse update", c.Moved},
		{"dropped by steering", c.Undecided},
		{"dropped, entries full", c.EntriesFull},
		{"out of descriptors or ports", c.Exhausted},
		{"entries opened", c.Opened},
		{"entries timed out", c.Expired},
		{"entries cleared", c.Cleared},
		{"unanswered entries evicted", c.Evicted},
		{"entries displaced by CID", c.Displaced},
		{"destinations timed out", c.BackendTimeouts},
		{"refused (ICMP)", c.Refused},
		{"send errors", c.SendErrors},
		{"reply errors", c.ReplyErrors},
		{"receive errors", c.ReceiveErrors},
		{"receive buffer overflows", c.ReceiveOverflows},
	} {
		if row.value > 0 {
			rows = append(rows, [2]string{row.name, strconv.FormatUint(row.value, 10)})
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(s.Reasons)) {
		rows = append(rows, [2]string{"reason " + reason, strconv.FormatUint(s.Reasons[reason], 10)})
	}
	return rows
}

// Table returns the counters as a table for people.
func (s *Stats) Table() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range s.rows() {
		fmt.Fprintf(w, "%s\t%s\n", row[0], row[1])
	}
	_ = w.Flush()
	if b.Len() == 0 {
		return "nothing was received yet."
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func (c *Console) stats(context.Context, []string) (string, error) {
	stats := c.datapath.Stats()
	return stats.Table(), nil
}

func (c *Console) entries(_ context.Context, args []string) (string, error) {
	limit := 20
	if len(args) > 0 {
		var err error
		if limit, err = strconv.Atoi(args[0]); err != nil || limit < 1 || limit > 100000 || len(args) > 1 {
			return "", errors.New("write entries, or entries and a number from 1 to 100000")
		}
	}
	list := c.datapath.Entries(limit)
	if len(list) == 0 {
		return "no NAT entries.", nil
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "client\tto\toutgoing\tdestination\tidle")
	for _, e := range list {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", e.Client, e.VIP, e.Outgoing, e.Backend.Backend, seconds(e.Idle))
	}
	_ = w.Flush()
	return strings.TrimSuffix(b.String(), "\n"), nil
}

func faultNames() []string {
	return []string{
		"loss-forward=", "loss-backward=", "size-limit=", "size-percent=", "truncate-limit=", "truncate-percent=",
		"reorder=", "reorder-delay=", "reorder-jitter=", "seed=",
	}
}

func (c *Console) faults(_ context.Context, args []string) (string, error) {
	f := c.datapath.Stats().Faults
	for _, arg := range args {
		name, value, ok := strings.Cut(arg, "=")
		if !ok {
			return "", fmt.Errorf("%q: write name=value, such as loss-forward=20", arg)
		}
		if err := f.set(name, value); err != nil {
			return "", err
		}
	}
	if len(args) > 0 {
		if err := c.datapath.SetFaults(f); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("loss-forward=%v loss-backward=%v size-limit=%d size-percent=%v truncate-limit=%d truncate-percent=%v reorder=%v reorder-delay=%s reorder-jitter=%s seed=%d",
		f.LossForward, f.LossBackward, f.SizeLimit, f.SizePercent, f.TruncateLimit, f.TruncatePercent,
		f.ReorderPercent, f.ReorderDelay, f.ReorderJitter, f.Seed), nil
}

func (f *Faults) set(name, value string) (err error) {
	percent := func(to *float64) { *to, err = strconv.ParseFloat(value, 64) }
	length := func(limit *int, share *float64) {
		*limit, err = strconv.Atoi(value)
		if *share == 0 {
			*share = 100
		}
	}
	want := "is no value for it"
	duration := func(to *time.Duration) {
		*to, err = time.ParseDuration(value)
		want = "is not a time; write a number with its unit, such as 50ms"
	}
	switch name {
	case "loss-forward":
		percent(&f.LossForward)
	case "loss-backward":
		percent(&f.LossBackward)
	case "size-limit":
		length(&f.SizeLimit, &f.SizePercent)
	case "size-percent":
		percent(&f.SizePercent)
	case "truncate-limit":
		length(&f.TruncateLimit, &f.TruncatePercent)
	case "truncate-percent":
		percent(&f.TruncatePercent)
	case "reorder":
		percent(&f.ReorderPercent)
	case "reorder-delay":
		duration(&f.ReorderDelay)
	case "reorder-jitter":
		duration(&f.ReorderJitter)
	case "seed":
		f.Seed, err = strconv.ParseUint(value, 10, 64)
	default:
		return fmt.Errorf("no fault %q; there are %s", name, strings.Join(faultNames(), " "))
	}
	if err != nil {
		return fmt.Errorf("fault %s: %q %s", name, value, want)
	}
	return nil
}
