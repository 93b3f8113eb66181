package tcpscale

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Finder watches a ramp and says when it stands still below its target, and at which known ceiling.
type Finder struct {
	Quiet        time.Duration // without growth; 0: 5 s
	Files        uint64        // open-file limit of a worker
	Workers      int
	Ports        int      // source ports towards one target
	Tuples       int      // pairs of a source and a target: ranges of ports
	ServerLimits []string // that the other end has hit, where it is known
	best         int
	since        time.Duration
	reported     time.Time // when the report of then was made
	before       map[string]uint64
}

// growth is what counts as such: churn and a few that come back are none.
const growth = 0.002

// Watch takes a report at a time since the start. Calls are in the order of time.
func (f *Finder) Watch(now time.Duration, r *Report) *Plateau {
	n := r.Connections.Established
	if n >= r.Connections.Target || n > f.best+int(growth*float64(f.best)) || f.before == nil {
		f.best, f.since, f.reported, f.before = max(n, f.best), now, r.At, r.Failures
		if f.before == nil {
			f.before = map[string]uint64{}
		}
		return nil
	}
	quiet := f.Quiet
	if quiet == 0 {
		quiet = 5 * time.Second
	}
	if now-f.since < quiet || !r.At.IsZero() && r.At.Sub(f.reported) < quiet { // an old report says nothing of today
		return nil
	}
	return f.name(n, (now - f.since).Seconds(), r)
}

// name says what the ramp stands at, by the failures since it does: a limit that was hit is named as such, and the number
// is looked up only where connects go unanswered, as exhausted tables of ports or connections leave them.
func (f *Finder) name(n int, seconds float64, r *Report) *Plateau {
	p := &Plateau{Connections: n, Since: math.Round(seconds*10) / 10, Ceiling: "unknown"}
	kind, count := mostFrequent(r.Failures, f.before)
	p.Because = "nothing has failed; connects are still under way"
	if count > 0 {
		p.Because = fmt.Sprintf("%d attempts failed since: %s", count, kind)
		p.Kind, p.Remedy = kind.String(), kind.Remedy()
	}
	switch {
	case count == 0:
	case kind == OutOfFiles:
		p.Ceiling = "open files of the client" // of the system, or of who has started us with others open
		if n <= int(f.Files)*f.Workers {
			p.At, p.Ceiling = int(f.Files)*f.Workers, fmt.Sprintf("open files: %d for each of %d workers", f.Files, f.Workers)
		}
	case kind == OutOfPorts:
		p.At, p.Ceiling = f.Ports*f.Tuples, fmt.Sprintf("source ports: %d for each of %d pairs of source and target", f.Ports, f.Tuples)
	case kind == Unanswered && len(f.ServerLimits) > 0:
		p.Ceiling = "the server's limit: " + f.ServerLimits[0]
	case kind == Unanswered:
		p.Ceiling = "what the server's program takes: its open files, or its accept queue"
	case len(r.LimitsHit) > 0:
		p.Ceiling = "limit hit: " + r.LimitsHit[0]
	case n == 0:
		p.Ceiling = "no connection gets through"
	case kind == Timeout:
		p.At, p.Ceiling = possibly(n)
	case kind == Hung:
		p.Ceiling = "no ceiling of the path: the server's program hangs"
	case kind == Evicted:
		p.Ceiling = "no known ceiling: the server evicts connections whose heartbeats it does not get"
	case kind == Starved:
		p.Ceiling = "no ceiling of the path: this machine, which did not schedule the tester in time"
	default:
		p.Ceiling = "no known ceiling: attempts end as " + kind.String()
	}
	p.Text = sentence(p)
	return p
}

func sentence(p *Plateau) string {
	text := fmt.Sprintf("plateau at %d: %s; %s", p.Connections, p.Ceiling, p.Because)
	if p.Remedy != "" {
		text += ": " + p.Remedy
	}
	return text
}

// possibly says which known ceilings a number is close to. That is no more than a hint: near multiples of so many numbers
// lie many others.
func possibly(n int) (at int, words string) {
	var all []string
	if name, ok := share(n); ok {
		at, all = n, append(all, name)
	}
	for _, c := range nearest(n, Ceilings()) {
		if at == 0 {
			at = c.Connections
		}
		all = append(all, c.Name)
	}
	if len(all) == 0 {
		return 0, "unknown"
	}
	const maximum = 3
	all = append(all[:min(len(all), maximum)], "or a quota of another kind (a firewall's, a connection table's)")
	return at, "possibly " + strings.Join(all, "; ")
}

// Ceiling is a number of connections at which paths are known to end.
type Ceiling struct {
	Connections int
	Name        string
}

// Ceilings are the known ones; multiples of most are met too (nodes, addresses).
func Ceilings() []Ceiling {
	return []Ceiling{
		{1024, "default allocation of a node behind Azure Load Balancer (pool of up to 50)"},
		{28232, "Linux's default source ports 32768–60999 towards one target"},
		{50000, "Azure NAT gateway: connections of one address to one destination"},
		{55000, "AWS NAT gateway: connections of one address to one destination"},
		{64000, "Azure Load Balancer: SNAT ports of one frontend address"},
		{64512, "ports 1024–65535 of one address: masquerade, kube-proxy, Cloud NAT, or a widened source range"},
		{131072, "the minimum conntrack table of kube-proxy, or the TIME_WAIT buckets"},
		{262144, "conntrack table at the kernel's default (nf_conntrack_max)"},
	}
}

// share names n where it is just an equal share of the ports of a frontend, in blocks of 8, as Azure's manual allocation cuts
// them: quotas are exact, so nothing else is taken for one.
func share(n int) (name string, ok bool) {
	const frontend, block = 64000, 8
	if n < 1 || n%block != 0 || frontend%n != 0 || n == frontend {
		return "", false
	}
	return fmt.Sprintf("%d / %d: an equal share of the SNAT ports of an Azure Load Balancer frontend address, allocated by hand", frontend, frontend/n), true
}

// nearest are the ceilings, or their multiples up to 16, that are within 0.5 % of n; those of smaller multiples first.
func nearest(n int, ceilings []Ceiling) (near []Ceiling) {
	for k := 1; k <= 16; k++ {
		for _, c := range ceilings {
			total := k * c.Connections
			if math.Abs(float64(n-total)) > 0.005*float64(total) {
				continue
			}
			if k > 1 {
				c.Name = fmt.Sprintf("%d × %d: %s", k, c.Connections, c.Name)
			}
			near = append(near, Ceiling{total, c.Name})
		}
	}
	return near
}

// limiter finds a limit on new connections per second: they come through at an even rate, while others go unanswered.
type limiter struct{ points []limiterPoint }

type limiterPoint struct {
	at               time.Duration
	opened, timeouts uint64
}

// watch takes a report at a time since the start, about once a second; the result is the rate, or 0.
func (l *limiter) watch(now time.Duration, r *Report) float64 {
	const window = 6
	l.points = append(l.points, limiterPoint{now, r.Totals.Opened, r.Failures[Timeout.String()]})
	if len(l.points) > window+1 {
		l.points = l.points[1:]
	}
	first, last := l.points[0], l.points[len(l.points)-1]
	opened := float64(last.opened - first.opened)
	if len(l.points) <= window || r.Connections.Established >= r.Connections.Target || opened < 5*window || last.timeouts-first.timeouts < window {
		return 0
	}
	rate := opened / (last.at - first.at).Seconds()
	for i, p := range l.points[1:] {
		before := l.points[i]
		if each := float64(p.opened-before.opened) / (p.at - before.at).Seconds(); math.Abs(each-rate) > 0.3*rate {
			return 0
		}
	}
	return rate
}

// mostFrequent is the kind that failed most since before.
func mostFrequent(now, before map[string]uint64) (kind Failure, count uint64) {
	for k := range failureKinds {
		if n := now[k.String()] - before[k.String()]; n > count {
			kind, count = k, n
		}
	}
	return kind, count
}

// Reconcile compares what a client counts with what the servers count that it alone uses.
func Reconcile(client, server *Report) *Reconciled {
	r := &Reconciled{Client: client.Connections.Established, Server: server.Connections.Established}
	r.Agree = r.Client == r.Server
	switch queued := client.Connections.Unanswered; {
	case r.Agree:
	case r.Client < r.Server:
		r.Finding = fmt.Sprintf("the server holds %d that the client has given up: half-open until evicted", r.Server-r.Client)
	default:
		r.Finding = fmt.Sprintf("the client holds %d that the server has lost: half-open until %s", r.Client-r.Server, "the missed heartbeats show it")
		if queued > 0 {
			r.Finding += fmt.Sprintf("; %d more only sit in an accept queue", queued)
		}
	}
	return r
}
