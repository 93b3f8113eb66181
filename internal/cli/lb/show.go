package lb

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/client"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/balancing"
	"github.com/weir-lb/weir/internal/terminal"
)

func newLBShowCommand() *cobra.Command {
	var flags cli.ClientFlags
	var watch bool
	var every time.Duration
	cmd := &cobra.Command{
		Use:   "show [SERVICE]",
		Short: "Show services, addresses, backends and what they carry",
		Long: `Show the services, addresses and backends in force. With the kernel and queue data paths also packets by reason, and
packets, bytes and flows by backend: totals since the tables were made, and with --watch rates since the last line. With queues also
how packets spread over them.`,
		Example: `  weir lb show
  weir lb show coaps --json
  weir lb show --watch --every 5s`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := flags.Client()
			if err != nil {
				return err
			}
			if every < 100*time.Millisecond {
				return cli.UsageError(fmt.Errorf("--every %s: write 100ms or more", every))
			}
			name := ""
			if len(args) == 1 {
				name = args[0]
			}
			s := shower{client: client, service: name, asJSON: flags.AsJSON, out: cmd.OutOrStdout()}
			if watch {
				s.lines = true
				return cli.Watch(cmd.Context(), &s.out, s.asJSON, every, s.next)
			}
			return s.once(cmd.Context())
		},
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "again and again, with rates, until interrupted")
	cli.DurationVar(cmd.Flags(), &every, "every", time.Second, "how often with --watch")
	flags.Add(cmd, cli.LBPart(), cli.NATPart())
	cmd.ValidArgsFunction = cli.AtMost(1, serviceNames(&flags, false))
	return cmd
}

// shower prints the state of the running balancer.
type shower struct {
	client  *client.Client
	service string // "": all
	asJSON  bool
	lines   bool // JSON on one line each time
	out     io.Writer
	last    *v1.LBStatus
	lastAt  time.Time
}

func (s *shower) query(ctx context.Context) (*v1.LBStatus, error) {
	status, err := s.client.LBStatus(ctx)
	if err != nil {
		return nil, err
	}
	if s.service != "" {
		if status.Services = named(status.Services, s.service); status.Services == nil {
			return nil, fmt.Errorf("no service %q", s.service)
		}
	}
	return status, nil
}

func named(services []v1.ServiceStatus, name string) []v1.ServiceStatus {
	for i := range services {
		if services[i].Name == name {
			return services[i : i+1]
		}
	}
	return nil
}

func (s *shower) once(ctx context.Context) error {
	status, err := s.query(ctx)
	if err != nil {
		return err
	}
	return s.print(status, time.Now())
}

// next prints what changed since it printed before.
func (s *shower) next(ctx context.Context) error {
	status, err := s.query(ctx)
	if err != nil {
		return err
	}
	at := time.Now()
	if !s.asJSON {
		fmt.Fprintf(s.out, "%s  generation %d\n", at.Format(time.TimeOnly), status.Generation)
	}
	err = s.print(status, at)
	s.last, s.lastAt = status, at
	return err
}

func (s *shower) print(status *v1.LBStatus, at time.Time) error {
	if s.asJSON {
		list := []v1.ServiceShown{}
		for _, service := range status.Services {
			one := v1.ServiceShown{ServiceStatus: service}
			if k := status.Kernel; k != nil {
				one.Reasons, one.Carried, one.Flows = k.Reasons[service.Name], k.Backends[service.Name], k.Flows[service.Name]
			}
			if q := status.Queues; q != nil {
				one.Queued = queuedService(q, service.Name)
			}
			list = append(list, one)
		}
		if !s.lines {
			return cli.PrintJSON(s.out, list)
		}
		return json.NewEncoder(s.out).Encode(list)
	}
	if err := balancing.PrintServices(s.out, status.Services, status.Tier); err != nil {
		return err
	}
	table := terminal.NewTable(s.out, false)
	if status.Queues != nil {
		s.printQueued(table, status, at)
	}
	if status.Kernel != nil {
		if status.Fast != nil {
			fmt.Fprintf(table, "\nFast path, before the queue:\n%s", queuedTwice(status))
		}
		for i := range status.Services {
			s.printCarried(table, status, status.Services[i].Name, at)
		}
	}
	return table.Flush()
}

// rates shows counters: as they are, or as changes per second since an earlier look.
type rates struct {
	unit    string // of headings
	seconds float64
}

func (s *shower) rates(at time.Time, earlier bool) rates {
	if !earlier {
		return rates{}
	}
	return rates{"/s", at.Sub(s.lastAt).Seconds()}
}

func (r rates) of(now, then uint64) string {
	if r.seconds > 0 {
		return fmt.Sprintf("%.0f", float64(now-min(then, now))/r.seconds)
	}
	return fmt.Sprint(now)
}

// mostFirst are the keys of counters, those with the most first, equal ones in their order.
func mostFirst[V any](counters map[string]V, count func(V) uint64) []string {
	keys := slices.Sorted(maps.Keys(counters))
	slices.SortStableFunc(keys, func(a, b string) int { return cmp.Compare(count(counters[b]), count(counters[a])) })
	return keys
}

// printCarried writes the counters of one service; as rates when there is a time to compare with.
func (s *shower) printCarried(table *terminal.Table, status *v1.LBStatus, name string, at time.Time) {
	k := status.Kernel
	reasons, backends, flows := k.Reasons[name], k.Backends[name], k.Flows[name]
	var before v1.EBPFCounters
	earlier := s.last != nil && s.last.Kernel != nil
	if earlier {
		before = s.last.Kernel.EBPFCounters
	}
	per := s.rates(at, earlier)
	total := 0
	for _, n := range flows {
		total += n
	}
	fmt.Fprintf(table, "\n%s\tPACKETS IN%s\tBYTES IN%s\tPACKETS OUT%s\tBYTES OUT%[2]s\tNEW FLOWS%[2]s\tFLOWS\tSHARE\n", name, per.unit, per.unit, per.unit)
	for _, backend := range slices.Sorted(maps.Keys(backends)) {
		b, then := backends[backend], before.Backends[name][backend]
		fmt.Fprintf(table, "  %s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\n", backend, per.of(b.In.Packets, then.In.Packets), per.of(b.In.Bytes, then.In.Bytes),
			per.of(b.Out.Packets, then.Out.Packets), per.of(b.Out.Bytes, then.Out.Bytes), per.of(b.Opened, then.Opened), flows[backend],
			percent(uint64(flows[backend]), uint64(total)))
	}
	table.End()
	if len(reasons) > 0 {
		fmt.Fprintf(table, "  REASON\tPACKETS%s\tBYTES%s\n", per.unit, per.unit)
	}
	for _, reason := range mostFirst(reasons, func(c v1.Count) uint64 { return c.Packets }) {
		n, then := reasons[reason], before.Reasons[name][reason]
		fmt.Fprintf(table, "  %s\t%s\t%s\n", reason, per.of(n.Packets, then.Packets), per.of(n.Bytes, then.Bytes))
	}
	table.End()
}
