package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/metrics"
	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/procstat"
)

const (
	maxRequest = 8192             // bytes of a request with its payload
	echoRoom   = 3 + 40           // bytes of an Echo option with its header, in addition to maxRequest (RFC 9175 section 2.2.1)
	staleAfter = 60 * time.Second // without a single response the load ends, unless it goes on after errors and has a duration
	drainFor   = 10 * time.Second // how long answers are awaited after the duration is over
	connectFor = 60 * time.Second // how long the first handshakes may take
	lookEvery  = 20 * time.Millisecond
	maxClients = 1 << 20
)

// bench is one load.
type bench struct {
	cfg      BenchConfig
	target   Target
	address  netip.AddrPort
	start    time.Time
	workers  []*worker
	prefix   uint64      // of the identities
	options  []Option    // of the requests, in order
	perRound uint32      // requests or notifications a POST brings in the reverse modes
	security Security    // but for identity and session
	tls      *tls.Config // over TLS; but for the tickets

	phase   atomic.Int32
	probed  atomic.Bool
	drained atomic.Bool // the end came after a full drain: what is pending now is lost
	woken   chan struct{}
}

// Bench runs one load until its requests are answered, its duration is over or ctx is cancelled (no error then: the result
// contains how far it came). live, if not nil, is called every LiveEvery from one goroutine and must not block.
// The first client makes one verified request before the others start; an error of it ends the load.
//
// After Duration no request is begun, and answers are awaited for up to 10 s; what is then unanswered counts as lost.
func Bench(ctx context.Context, cfg BenchConfig, live func(Snapshot)) (BenchResult, error) {
	b, err := newBench(cfg)
	if err != nil {
		return BenchResult{}, err
	}
	var running sync.WaitGroup
	for _, w := range b.workers {
		running.Go(w.run)
	}
	defer func() {
		b.enter(phaseEnd)
		running.Wait()
	}()
	setup := time.Now()
	if err := b.connect(ctx); err != nil {
		return BenchResult{}, err
	}
	result := BenchResult{Setup: time.Since(setup)}
	if live != nil {
		live(Snapshot{Total: b.total().stats})
	}
	processes := serverProcesses(cfg.ServerPID)
	server, err := sumCPU(processes)
	if err != nil {
		return BenchResult{}, err
	}
	begun, cpu := time.Now(), processCPU()
	b.enter(phaseLoad)
	reporter := &reporter{b: b, live: live, begun: begun, last: begun, timeline: measure.NewTimeline(time.Second)}
	err = b.load(ctx, reporter)
	result.Elapsed, result.CPU = time.Since(begun), processCPU()-cpu
	if after, failed := sumCPU(processes); failed != nil {
		err = errors.Join(err, failed)
	} else {
		result.ServerCPU = after - server
	}
	b.enter(phaseEnd)
	running.Wait()
	total := b.total()
	result.Stats = total.stats
	result.Handshake = measure.NewLatency()
	rest := measure.NewLatency()
	for _, w := range b.workers { // they have ended: what they have not published is ours
		rest.Merge(w.rtt)
		result.Handshake.Merge(w.handshakes)
		if w.shared.rtt != nil {
			rest.Merge(w.shared.rtt)
		}
	}
	reporter.timeline.Merge(result.Elapsed, rest, statsSince(&total.stats, &reporter.previous).Errors)
	result.Samples, result.RTT = reporter.timeline.End(result.Elapsed)
	result.Groups = b.groups()
	return result, errors.Join(err, total.err)
}

func newBench(cfg BenchConfig) (*bench, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	target, err := ParseTarget(cfg.URI)
	if err != nil {
		return nil, err
	}
	cfg.complete(target)
	b := &bench{cfg: cfg, target: target, start: time.Now(), prefix: rand.Uint64(), woken: make(chan struct{}, 1)}
	b.perRound = cfg.perRound(target)
	b.security = Security{
		Identity: cfg.Identity, Secret: cfg.Secret, Credentials: cfg.Credentials, ServerName: cfg.ServerName, Suites: cfg.Suites,
		CIDLength: cfg.CIDLength, NoCID: cfg.NoCID, Resumable: cfg.Resume,
	}
	b.security.complete(target.Host)
	if b.address, err = target.Resolve(); err != nil {
		return nil, err
	}
	if target.Stream && target.Secure {
		if b.tls, err = b.security.tls(target.Host); err != nil {
			return nil, err
		}
	}
	for i := range cfg.Workers {
		first, end := cfg.Clients*i/cfg.Workers, cfg.Clients*(i+1)/cfg.Workers
		w, err := newWorker(b, first, end-first)
		if err != nil {
			for _, w := range b.workers {
				w.close()
			}
			return nil, err
		}
		b.workers = append(b.workers, w)
	}
	return b, nil
}

// Validate refuses what cannot be, with its remedy.
func (c *BenchConfig) Validate() error {
	target, err := ParseTarget(c.URI)
	switch {
	case err != nil:
		return err
	case target.Stream && (c.NON || c.AckTimeout > 0 || c.Sockets == SocketsShared || c.CIDLength > 0 || c.NoCID || c.RebindEvery > 0):
		return fmt.Errorf("URI %q: TCP confirms and repeats by itself, and a connection belongs to one client and its address: non-confirmable requests, the ACK timeout, "+
			"shared sockets, connection ids and changes of address are for coap:// and coaps://", c.URI)
	case c.Clients < 0 || c.Clients > maxClients:
		return fmt.Errorf("clients: %d is not between 1 and %d", c.Clients, maxClients)
	case c.Requests < 0 || c.Duration < 0 || c.RebindEvery < 0 || c.Pause < 0 || c.Spread < 0 || c.AckTimeout < 0 || c.Burst < 0 || c.Workers < 0 || c.LiveEvery < 0:
		return errors.New("requests, duration, rebind interval, pause, spread, ACK timeout, burst, workers and live interval must not be negative")
	case c.ServerPID < 0:
		return fmt.Errorf("server process: %d is no process id", c.ServerPID)
	case c.CIDLength < 0 || c.CIDLength > 8:
		return fmt.Errorf("connection id length: %d is not between 0 and 8", c.CIDLength)
	case c.NoCID && (c.CIDLength > 0 || c.Sockets == SocketsShared):
		return errors.New("without connection ids there is no length of them, and each client needs a socket of its own")
	case c.Serials && (c.BlockSize > 0 || c.Payload != nil && len(c.Payload) < tokenLength || c.Mode != "" && c.Mode != ModeRequest):
		return fmt.Errorf("serial numbers: they need mode request, a payload of at least %d bytes, and no blocks", tokenLength)
	case c.RebindShare < 0 || c.RebindShare > 1:
		return fmt.Errorf("rebind share: %g is not between 0 and 1", c.RebindShare)
	case len(c.From) > 0 && slices.ContainsFunc(c.From, func(a netip.Addr) bool { return !a.IsValid() || a.IsUnspecified() || a.IsMulticast() }):
		return errors.New("source addresses: each must be an address of this machine")
	case c.Sockets != "" && c.Sockets != SocketsEach && c.Sockets != SocketsShared:
		return fmt.Errorf("sockets: %q; use %s or %s", c.Sockets, SocketsEach, SocketsShared)
	case c.Sockets == SocketsShared && target.Secure && c.CIDLength != 0 && c.CIDLength < 4:
		return fmt.Errorf("connection id length: %d is too short to distinguish clients of a shared socket; use 4 to 8", c.CIDLength)
	}
	return c.validateMode(target)
}

// complete fills defaults in.
func (c *BenchConfig) complete(target Target) {
	if c.Clients == 0 {
		c.Clients = 5
	}
	if c.Requests == 0 && c.Duration == 0 {
		c.Requests = 100
	}
	if c.Payload == nil {
		c.Payload = []byte("hello, this is a benchmark with 40 bytes")
	}
	if c.Sockets == "" {
		c.Sockets = SocketsEach
	}
	if c.Sockets == SocketsShared && target.Secure && c.CIDLength == 0 {
		c.CIDLength = 4
	}
	if c.Workers == 0 {
		c.Workers = runtime.GOMAXPROCS(0)
	}
	c.Workers = min(c.Workers, c.Clients)
	if c.Mode == "" {
		c.Mode = ModeRequest
	}
	if c.RebindShare == 0 {
		c.RebindShare = 1
	}
	if c.Burst == 0 && target.Stream { // servers bound how many of one address connect at a time
		c.Burst = max(1, 32/c.Workers)
	}
	if c.Burst == 0 {
		c.Burst = 64
	}
	if c.Spread == 0 {
		c.Spread = min(c.Pause, spreadFirst)
	}
	if c.LiveEvery == 0 {
		c.LiveEvery = time.Second
	}
	if c.Seed == 0 {
		c.Seed = rand.Uint64()
	}
}

// template is the request of every client; message id and token are filled in for each.
func (b *bench) template() ([]byte, error) {
	options := b.target.list()
	if len(b.cfg.Payload) > 0 {
		options = append(options, UintOption(message.ContentFormat, uint32(message.Text)))
	}
	payload := b.cfg.Payload
	if b.cfg.BlockSize > 0 && len(payload) > b.cfg.BlockSize {
		payload = payload[:b.cfg.BlockSize]
	}
	request, err := build(b.kind(), message.POST, make([]byte, tokenLength), options, payload)
	b.options = options // build has sorted them
	if err == nil && len(request) > maxRequest {
		err = message.ErrSpace
	}
	if err != nil {
		return nil, fmt.Errorf("request with %d bytes of payload: %w; at most %d bytes in all", len(b.cfg.Payload), err, maxRequest)
	}
	return request, nil
}

func (b *bench) identity(number uint32) string {
	if b.cfg.Identity != "" || b.cfg.Credentials != nil {
		return b.cfg.Identity
	}
	return fmt.Sprintf("cali.%016X", b.prefix+uint64(number))
}

// clock is the monotonic time of all workers.
func (b *bench) clock() time.Duration { return time.Since(b.start) }

// enter begins a phase for all workers.
func (b *bench) enter(p phase) {
	b.phase.Store(int32(p))
	for _, w := range b.workers {
		w.wake()
	}
}

// wake makes the load's goroutine look at what the workers have published.
func (b *bench) wake() {
	select {
	case b.woken <- struct{}{}:
	default:
	}
}

// pause waits for news or a while.
func (b *bench) pause(ctx context.Context) {
	timer := time.NewTimer(lookEvery)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-b.woken:
	case <-timer.C:
	}
}

// connect probes the server with one client and then makes all sessions.
func (b *bench) connect(ctx context.Context) error {
	for !b.probed.Load() {
		if err := errors.Join(ctx.Err(), b.total().err); err != nil {
			return fmt.Errorf("first request to %s: %w", b.cfg.URI, err)
		}
		if b.clock() > connectFor {
			return fmt.Errorf("first request to %s: %w within %v", b.cfg.URI, ErrNoResponse, connectFor)
		}
		b.pause(ctx)
	}
	b.enter(phaseConnect)
	for end := b.clock() + connectFor; b.clock() < end; {
		total := b.total()
		if err := errors.Join(ctx.Err(), total.err); err != nil {
			return err
		}
		if total.phase == phaseConnect && total.ready == b.cfg.Clients {
			break
		}
		b.pause(ctx)
	}
	return nil
}

// load runs the request phase and its drain.
func (b *bench) load(ctx context.Context, reporter *reporter) error {
	started := b.clock()
	for {
		b.pause(ctx)
		total := b.total()
		elapsed := time.Since(reporter.begun)
		reporter.look(false)
		switch {
		case total.err != nil || ctx.Err() != nil || total.ended == b.cfg.Clients:
			reporter.look(true)
			return nil
		case b.cfg.Duration > 0 && elapsed >= b.cfg.Duration:
			b.drain(ctx, reporter)
			return nil
		case !(b.cfg.NoStop && b.cfg.Duration > 0) && b.clock()-max(total.answered, started) > staleAfter:
			reporter.look(true)
			return fmt.Errorf("stale: no response for %v", staleAfter)
		}
	}
}

func (b *bench) drain(ctx context.Context, reporter *reporter) {
	b.enter(phaseDrain)
	for end := b.clock() + drainFor; ctx.Err() == nil; b.pause(ctx) {
		total := b.total()
		reporter.look(false)
		if total.phase == phaseDrain && total.idle == b.cfg.Clients {
			break
		}
		if b.clock() > end {
			b.drained.Store(true)
			break
		}
	}
	reporter.look(true)
}

// total adds up what the workers published. phase is the one that all have reached.
func (b *bench) total() report {
	sum := report{phase: phaseEnd}
	for _, w := range b.workers {
		w.mu.Lock()
		r := &w.shared
		metrics.Add(&sum.stats, &r.stats)
		sum.phase = min(sum.phase, r.phase)
		sum.ready += r.ready
		sum.ended += r.ended
		sum.idle += r.idle
		sum.answered = max(sum.answered, r.answered)
		if sum.err == nil {
			sum.err = r.err
		}
		w.mu.Unlock()
	}
	return sum
}

// groups sorts the clients by how many requests they had answered, into at most ten groups of equal width.
// Only once the workers have ended.
func (b *bench) groups() []Group {
	low, high := ^uint32(0), uint32(0)
	for _, w := range b.workers {
		for _, c := range w.clients {
			low, high = min(low, c.success), max(high, c.success)
		}
	}
	width := max(1, (uint64(high-low)+10)/10)
	groups := make([]Group, 0, 10)
	counts := [11]Group{}
	for _, w := range b.workers {
		for _, c := range w.clients {
			g := &counts[uint64(c.success-low)/width]
			if g.Clients == 0 {
				g.From, g.To = uint64(c.success), uint64(c.success)
			}
			g.Clients++
			g.From, g.To = min(g.From, uint64(c.success)), max(g.To, uint64(c.success))
		}
	}
	for _, g := range counts {
		if g.Clients > 0 {
			groups = append(groups, g)
		}
	}
	return groups
}

// responseError is a response of class 4 or 5 to the first request.
type responseError struct{ code message.Code }

func (e responseError) Error() string { return fmt.Sprintf("response %s %s", e.code, e.code.Name()) }

// processCPU is the user and system time of this process, 0 if the kernel does not report it.
func processCPU() time.Duration {
	spent, _ := procstat.CPU(os.Getpid())
	return spent
}

// serverProcesses are a process and the living ones that it has started, such as that of a supervisor; none with 0.
func serverProcesses(pid int) []int {
	if pid == 0 {
		return nil
	}
	return append(procstat.Descendants(pid), pid)
}

// sumCPU is the user and system time of processes. One that has ended is an error: its time is gone.
func sumCPU(pids []int) (sum time.Duration, err error) {
	for _, pid := range pids {
		spent, err := procstat.CPU(pid)
		if err != nil {
			return 0, fmt.Errorf("server: no process %d, or it has ended: %w", pid, err)
		}
		sum += spent
	}
	return sum, nil
}

// exponent is that of the blocks: bert, or their size is 16 << exponent.
func (b *bench) exponent() (n uint32) {
	for 16<<n < b.cfg.BlockSize && n < bert {
		n++
	}
	return n
}
