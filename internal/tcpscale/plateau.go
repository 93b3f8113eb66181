package tcpscale

import (
	"fmt"
	"math"
	"time"
)

// Finder watches a ramp and says when it stands still below its target, and at which known ceiling.
type Finder struct {
	Patience time.Duration // without growth; 0: 5 s
	Files    uint64        // open-file limit of a worker
	Workers  int
	Ports    int // source ports towards one target
	Tuples   int // pairs of a source and a target: ranges of ports
	best     int
	since    time.Duration
	told     time.Time // when the report of then was made
	before   map[string]uint64
}

// growth is what counts as such: churn and a few that come back are none.
const growth = 0.002

// Watch takes a report at a time since the start. Calls are in the order of time.
func (f *Finder) Watch(now time.Duration, r *Report) *Plateau {
	n := r.Connections.Established
	if n >= r.Connections.Target || n > f.best+int(growth*float64(f.best)) || f.before == nil {
		f.best, f.since, f.told, f.before = max(n, f.best), now, r.At, r.Failures
		if f.before == nil {
			f.before = map[string]uint64{}
		}
		return nil
	}
	patience := f.Patience
	if patience == 0 {
		patience = 5 * time.Second
	}
	if now-f.since < patience || !r.At.IsZero() && r.At.Sub(f.told) < patience { // an old report says nothing of today
		return nil
	}
	return f.name(n, (now - f.since).Seconds(), r)
}

// name says what the ramp stands at: by the failures since it does, then by the number.
func (f *Finder) name(n int, seconds float64, r *Report) *Plateau {
	p := &Plateau{Connections: n, Since: math.Round(seconds*10) / 10, Ceiling: "unknown"}
	kind, count := mostFrequent(r.Failures, f.before)
	p.Because = "nothing has failed; connects are still under way"
	if count > 0 {
		p.Because = fmt.Sprintf("%d attempts failed since: %s", count, kind)
		p.Kind, p.Remedy = kind.String(), kind.Remedy()
	}
	ceilings := Ceilings()
	switch {
	case kind == OutOfFiles && count > 0:
		ceilings = []Ceiling{{int(f.Files) * f.Workers, fmt.Sprintf("open files: %d for each of %d workers", f.Files, f.Workers)}}
	case kind == OutOfPorts && count > 0:
		ceilings = []Ceiling{{f.Ports * f.Tuples, fmt.Sprintf("source ports: %d for each of %d pairs of source and target", f.Ports, f.Tuples)}}
	}
	if n == 0 {
		p.Ceiling = "no connection gets through"
	} else if at, name, ok := nearest(n, ceilings); ok {
		p.At, p.Ceiling = at, name
	} else if name, ok := share(n); ok && kind == Timeout && count > 0 {
		p.At, p.Ceiling = n, name
	}
	return p
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
		{131072, "conntrack table at kube-proxy's least, or the TIME_WAIT buckets"},
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

// nearest is the ceiling, or its multiple up to 16, that is within 1 % of n; of two the smaller multiple.
func nearest(n int, ceilings []Ceiling) (at int, name string, ok bool) {
	for k := 1; k <= 16; k++ {
		best := 0.01
		for _, c := range ceilings {
			total := k * c.Connections
			if total == 0 {
				continue
			}
			if off := math.Abs(float64(n-total)) / float64(total); off <= best {
				best, at, name, ok = off, total, c.Name, true
				if k > 1 {
					name = fmt.Sprintf("%d × %d: %s", k, c.Connections, c.Name)
				}
			}
		}
		if ok {
			return at, name, true
		}
	}
	return 0, "", false
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
