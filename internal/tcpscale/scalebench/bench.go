package scalebench

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/finding"
	"github.com/weir-lb/weir/internal/tcpscale"
	"github.com/weir-lb/weir/internal/tcpscale/limits"
	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/procstat"
)

// Config is one benchmark.
type Config struct {
	Launcher      tcpscale.Launcher     // of the workers of both ends; Do is set with Namespace
	Namespace     bool                  // in a network namespace of its own, where we may
	Client        tcpscale.ClientConfig // Targets are set
	Command       string                // as it was typed, for the report
	ClientWorkers int                   // 0: as many as needed
	ServerWorkers int                   // 0: as many as needed. With as many as ClientWorkers each pair has a port of its own
	Hold          time.Duration
	Plateau       time.Duration
	Tick          func(tcpscale.Report)
	Ends          func(client, server tcpscale.Report) // every second and at the end; may be nil
}

// Result is what it found, and how it is shown.
type Result v1.TCPBenchOf[measure.Latency]

// Its parts are public types too.
type (
	Via       = v1.TCPBenchViaOf[measure.Latency]   // what a path through the lab adds
	Event     = v1.TCPBenchEventOf[measure.Latency] // one that has been
	Balancer  = v1.TCPBalancer
	Condition = v1.TCPCondition
)

// UnfitError is a benchmark that was not begun: the doctor says that it cannot fit.
type UnfitError struct{ Findings []finding.Finding }

func (e *UnfitError) Error() string {
	var words []string
	for _, f := range e.Findings {
		if f.Level == finding.Fail {
			words = append(words, fmt.Sprintf("%s: %s (remedy: %s)", f.Check, f.What, f.Remedy))
		}
	}
	return "so many connections do not fit here: " + strings.Join(words, "; ")
}

// Run examines the limits, starts servers and clients, holds, and ends all. An end of ctx ends the hold early; the
// result says how long it was.
func Run(ctx context.Context, c Config) (*Result, error) {
	began, load, n := time.Now(), procstat.LoadAverage(), c.Client.Connections
	findings := limits.Examine(limits.Read(), limits.Want{Connections: n, BothEnds: true, Workers: fewest(c.ClientWorkers, c.ServerWorkers)})
	if !limits.Fits(findings) {
		return nil, &UnfitError{findings}
	}
	files, err := tcpscale.RaiseFiles()
	if err != nil {
		return nil, err
	}
	where := "this one"
	if c.Namespace {
		own, err := newNamespace(n)
		if err == nil {
			defer own.close()
			c.Launcher.Do, where = own.do, "its own"
		} else {
			where += "; none of its own: " + err.Error()
		}
	}
	if c.ClientWorkers == 0 {
		c.ClientWorkers = tcpscale.WorkersFor(n, files)
	}
	if c.ServerWorkers == 0 {
		c.ServerWorkers = c.ClientWorkers
	}
	config := tcpscale.ServerConfig{Listen: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")}, ID: "bench", Backlog: 4096}
	if c.ServerWorkers == c.ClientWorkers {
		// A worker that serves many clients is woken for one frame at a time; one that serves one takes them together.
		config.Listen, config.Apart, c.Client.Apart = slices.Repeat(config.Listen, c.ServerWorkers), true, true
	}
	server, err := tcpscale.StartServer(c.Launcher, config, c.ServerWorkers)
	if err != nil {
		return nil, err
	}
	defer server.Close()
	c.Client.Targets = server.Listen
	m := measuring{
		before: readMemory(), server: server.Report, tick: c.Tick, ends: c.Ends,
		conditions: func() []Condition { return conditions(c.Launcher, where, files) },
	}
	run := tcpscale.ClientRun{
		Launcher: c.Launcher, Config: c.Client, Workers: c.ClientWorkers, For: c.Hold, Plateau: c.Plateau,
		Server: server.Report, Tick: m.look,
	}
	report, err := run.Run(ctx)
	if err == nil {
		err = server.Err()
	}
	if err != nil {
		return nil, err
	}
	result := m.result(&report)
	result.Connections, result.Findings, result.Conditions = n, findings, m.found
	result.Command, result.LoadBefore = c.Command, load
	result.interrupt(ctx, began)
	result.judge()
	return result, nil
}

// fewest is the smaller number of processes that somebody requested; 0: as many as needed.
func fewest(client, server int) int {
	if client == 0 || server > 0 && server < client {
		return server
	}
	return client
}

// measuring takes figures during the hold.
type measuring struct {
	before, now     memory
	server          func() tcpscale.Report
	tick            func(tcpscale.Report)
	ends            func(client, server tcpscale.Report)
	first, last     tcpscale.Report // client, at both ends of the hold
	firstAt, lastAt tcpscale.Report // server
	paused          bool            // the hold is not idle any more
	conditions      func() []Condition
	found           []Condition
}

func (m *measuring) look(r tcpscale.Report) {
	if m.tick != nil {
		m.tick(r)
	}
	if m.ends != nil {
		server := m.server()
		server.Final = r.Final
		m.ends(r, server)
	}
	// The last report of a run has its history; by then connections may be going.
	if m.paused || r.FullAt.IsZero() || r.History != nil || r.At.Sub(r.FullAt) < 2*time.Second {
		return
	}
	if m.first.At.IsZero() {
		m.first, m.firstAt, m.found = r, m.server(), m.conditions()
	}
	m.last, m.lastAt, m.now = r, m.server(), readMemory()
}

func (m *measuring) result(client *tcpscale.Report) *Result {
	r := &Result{At: time.Now(), Machine: machine(), LoadAfter: procstat.LoadAverage(), Client: *client, Server: m.lastAt, Held: client.Connections.Established, Lost: client.Totals.Lost}
	if !client.FullAt.IsZero() {
		r.EstablishSeconds = client.FullAt.Sub(client.BeganAt).Seconds()
		r.HoldSeconds = client.At.Sub(client.FullAt).Seconds()
	}
	if span := m.last.At.Sub(m.first.At).Seconds(); span > 0 {
		r.ClientCPU = measured(100 * (m.last.CPUSeconds - m.first.CPUSeconds) / span)
		r.ServerCPU = measured(100 * (m.lastAt.CPUSeconds - m.firstAt.CPUSeconds) / span)
		r.Beats = measured(float64(m.last.Heartbeats.Sent-m.first.Heartbeats.Sent) / span)
	}
	if n := float64(m.last.Connections.Established); n > 0 {
		r.KernelBytes, r.AvailableBytes = growth((m.now.kernel-m.before.kernel)/n), growth((m.before.available-m.now.available)/n)
		r.ClientBytes, r.ServerBytes = measured(m.last.BytesPerConnection), measured(m.lastAt.BytesPerConnection)
		r.ClientTable, r.ServerTable = measured(float64(m.last.TableBytes)/n), measured(float64(m.lastAt.TableBytes)/n)
	}
	return r
}

// measured is a figure that was taken; one that was not is nil, as 0 would be a claim.
func measured(v float64) *float64 { return &v }

// growth is a figure of the whole machine's memory; nil if that shrank meanwhile: the connections took less than what other
// programs and the kernel itself take and give back.
func growth(v float64) *float64 {
	if v <= 0 {
		return nil
	}
	return &v
}

// interrupt notes an end of ctx.
func (r *Result) interrupt(ctx context.Context, began time.Time) {
	if ctx.Err() != nil {
		r.InterruptedAfter = time.Since(began).Seconds()
	}
}

// reportTimeout is how long the ends may take to report what they hold, in seconds: a report is made once a second, and taken once
// a second.
const reportTimeout = 3

// judge is strict: the testers were scheduled, all there, none lost, both ends agree. Who is interrupted before he could
// know says so.
func (r *Result) judge() {
	r.judgeConnections()
	if r.Void = cmp.Or(r.Client.Void, r.Server.Void); r.Void != "" {
		r.OK, r.Verdict = false, "void: "+r.Void+": this machine was too busy; "+r.Verdict
	}
}

func (r *Result) judgeConnections() {
	c := &r.Client
	agree := c.Reconciled == nil || c.Reconciled.Agree
	interrupted := fmt.Sprintf("interrupted after %.1f s: ", r.InterruptedAfter)
	switch {
	case r.InterruptedAfter > 0 && c.FullAt.IsZero():
		r.Verdict = fmt.Sprintf(interrupted+"%d of %d connections were established", r.Held, r.Connections)
	case r.InterruptedAfter > 0 && !agree && r.unexplained() == 0 && r.HoldSeconds < reportTimeout:
		r.Verdict = fmt.Sprintf(interrupted+"%d of %d connections were established, too short to compare both ends", r.Held, r.Connections)
	case c.FullAt.IsZero():
		r.Verdict = fmt.Sprintf("%d of %d connections were established", r.Held, r.Connections)
		if p := c.Plateau; p != nil {
			r.Verdict += fmt.Sprintf("; plateau: %s; %s", p.Ceiling, p.Because)
		}
	case r.unexplained() > 0:
		r.Verdict = fmt.Sprintf("%d connections were lost in %.0f s%s", r.unexplained(), r.HoldSeconds, r.besides())
	case r.Held < r.Connections:
		r.Verdict = fmt.Sprintf("%d of %d connections at the end", r.Held, r.Connections)
	case !agree:
		r.Verdict = "the ends do not agree: " + c.Reconciled.Finding
	default:
		r.OK = true
		r.Verdict = fmt.Sprintf("%d connections held for %.0f s, 0 lost%s", r.Held, r.HoldSeconds, r.besides())
	}
}

type memory struct{ kernel, available float64 } // bytes

func readMemory() (m memory) {
	m.kernel = procstat.Field("/proc/meminfo", "SUnreclaim:", 1) * 1024
	m.available = procstat.Field("/proc/meminfo", "MemAvailable:", 1) * 1024
	m.kernel += procstat.Field("/proc/net/sockstat", "TCP:", 10) * float64(os.Getpagesize()) // "TCP: inuse N orphan N tw N alloc N mem PAGES"
	return m
}

// machine says where figures come from.
func machine() string {
	return fmt.Sprintf("Linux %s, %s processors, %.0f GB", procstat.KernelRelease(), processors(), procstat.Field("/proc/meminfo", "MemTotal:", 1)/(1<<20))
}

// Validate says what cannot be meant.
func (c *Config) Validate() error {
	client := c.Client
	client.Targets = []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:1")} // chosen later
	if err := client.Validate(); err != nil {
		return err
	}
	if c.ClientWorkers > client.Connections {
		return fmt.Errorf("%d workers: more than %d connections", c.ClientWorkers, client.Connections)
	}
	return nil
}
