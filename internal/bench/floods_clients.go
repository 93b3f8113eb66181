package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/programs"
)

// Handshakes is what `weir bench traffic handshakes` counts: new sessions whose request was answered in time, and all.
type Handshakes struct {
	OK  uint64 `json:"ok"`
	All uint64 `json:"all"`
	Why string `json:"why,omitempty"` // the first that failed
}

const (
	floodMovers   = 20                     // DTLS clients that change their addresses
	floodSleepers = 50                     // DTLS sessions without a packet during the flood
	floodSleep    = 33 * time.Second       // how long they have been silent when it begins
	floodKeep     = 20                     // flows that were there before
	floodNewRate  = 20                     // new flows a second; of DTLS a half of it
	moveEvery     = 2 * time.Second        // a DTLS client changes its address
	moveRetry     = 100 * time.Millisecond // its first retransmission; it gives a request up after 31 to 46 times that
	moveWait      = 6 * time.Second        // at most for the movers' answers after the flood: longer than that
	floodWait     = 2 * time.Second        // after the flood, before the last look
)

// underFlood starts the real clients, floods, and collects what became of them. Rates are a second.
func (r *floodRun) underFlood(ctx context.Context) (offered, reached float64, err error) {
	switch r.target.clients {
	case clientsDTLS:
		return r.floodDTLS(ctx)
	case clientsTurn:
		return r.floodTURN(ctx)
	case clientsProbes:
		return r.floodProbes(ctx)
	}
	return r.floodFlows(ctx)
}

// rate is the flood's in this run.
func (r *floodRun) rate() float64 {
	switch {
	case r.flood.name == attackUDPFlows && r.target.name == targetConntrack && !r.config.Quick:
		return floodConntrack
	case r.config.Quick && !r.flood.small:
		return r.flood.rate / 10
	}
	return r.flood.rate
}

// bound is that of a table of the target in this run.
func (r *floodRun) bound(entries int) int {
	switch {
	case r.flows > 0:
		return r.flows
	case r.config.Quick:
		return entries / 10
	}
	return entries
}

// send runs an [Attack] of this flood.
func (r *floodRun) send(ctx context.Context, cid []byte) (offered, reached float64, err error) {
	sent, err := r.attack(ctx, Attack{Kind: r.flood.attack(), Rate: r.rate(), Addresses: r.flood.addresses, CID: cid, Certificates: r.target.certificates})
	r.clients.returned = sent.Done
	if sent.Longest > 500*time.Millisecond {
		r.note(fmt.Sprintf("the generator did not run for %v", sent.Longest.Round(time.Millisecond)))
	}
	return r.rate(), sent.Reached(r.flood.attack()), err
}

// during calls what clients do while the flood runs.
func during(flood func() error, clients ...func() error) error {
	errs := make([]error, len(clients)+1)
	var running sync.WaitGroup
	for i, client := range clients {
		running.Go(func() { errs[i] = client() })
	}
	errs[len(clients)] = flood()
	running.Wait()
	return errors.Join(errs...)
}

// handshakes begins new sessions during the flood.
func (r *floodRun) handshakes(ctx context.Context) (result Handshakes, err error) {
	cmd := exec.Command(r.config.Binary, "bench", "traffic", "handshakes", "coaps://"+r.entry.String()+"/", //nolint:gosec // our own binary
		"--rate", strconv.Itoa(floodNewRate/2), "--duration", r.config.Duration.String())
	out, err := r.Output(ctx, "clients", cmd)
	if err != nil {
		return result, fmt.Errorf("new handshakes: %w", err)
	}
	return result, json.Unmarshal(out, &result)
}

// observe waits for a record with a connection id on its way to the server.
func (r *floodRun) observe(ctx context.Context) (cid []byte, err error) {
	const length = 6 // of the connection ids of the servers here
	fd := -1
	clients := r.Lab.Namespace("clients")
	index, _, err := clients.Interface("eth0")
	if err != nil {
		return nil, err
	}
	if err := clients.Do(func() (err error) {
		fd, err = packetSocket(index, unix.ETH_P_ALL) // what leaves as well
		return err
	}); err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var frame [attackFrameMax]byte
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		n, _, err := unix.Recvfrom(fd, frame[:], 0)
		if err != nil {
			if err := programs.Sleep(ctx, time.Millisecond); err != nil {
				return nil, err
			}
			continue
		}
		if cid := observeCID(frame[:n], r.entry, length); cid != nil {
			return cid, nil
		}
	}
	return nil, errors.New("no record with a connection id was seen")
}

// The rate of new flows that fills the kernel's table of 262,144 entries within five seconds.
const floodConntrack = 60000

// oneIdentity begins sessions of one identity from one address, and leaves them open.
func (r *floodRun) oneIdentity(ctx context.Context, uri string) (offered, reached float64, err error) {
	limited, cancel := context.WithTimeout(ctx, 2*r.config.Duration)
	defer cancel()
	wanted := int(r.rate())
	before, started := r.counter(ctx, "handshakes"), time.Now()
	cmd := coapBench(r.config.Binary, uri, wanted, "--sockets", "shared", "--identity", "cali.flood", "--requests", "1", "--quiet")
	stats, err := coapResult(limited, r.Running, r.Host("attacker"), cmd)
	elapsed := time.Since(started).Seconds()
	done := float64(stats.Handshakes)
	if err != nil { // it ended without a report; the server has counted
		done = r.counter(ctx, "handshakes") - before
		r.note("the flood did not end in time")
	}
	r.note(fmt.Sprintf("%.0f of %d handshakes in %.1f s", done, wanted, elapsed))
	return float64(wanted) / elapsed, done / elapsed, ctx.Err()
}

// counter is how many handshakes, or what else its DTLS engine counts, a Weir server has completed; 0 for another.
func (r *floodRun) counter(ctx context.Context, what string) float64 {
	if len(r.Daemons) == 0 {
		return 0
	}
	text, err := r.Daemons[0].Do(ctx, http.MethodGet, "/metrics", "")
	if err != nil {
		return 0
	}
	return programs.ParseMetrics(text)["weir_coap_engine_"+what+"_total"]
}

// floodFlows has flows that were there before, new ones, and datagrams in fragments.
func (r *floodRun) floodFlows(ctx context.Context) (offered, reached float64, err error) {
	host := r.Lab.Namespace("clients")
	load := func(stream bool, keep, pad int, opening time.Duration) *flowLoad {
		return &flowLoad{
			host: host, sources: floodsSources, to: r.entry, stream: stream, keep: keep, pad: pad,
			interval: 250 * time.Millisecond, opening: opening, requests: 3,
		}
	}
	stream := r.flood.streams
	staying := load(stream, floodKeep, 0, 0)
	loads := []*flowLoad{staying}
	var fragmented *flowLoad
	if r.flood.fragments && !r.target.apart {
		fragmented = load(false, floodKeep, 2400-flowNumber, 0)
		if r.flood.name == floodReordered {
			fragmented.over = r.reordering
		}
		loads = append(loads, fragmented)
	}
	stayCtx, stop := context.WithCancel(ctx)
	defer stop()
	for _, l := range loads {
		if err := l.start(stayCtx); err != nil {
			return 0, 0, fmt.Errorf("before the flood: %w", err)
		}
	}
	if err := programs.Sleep(ctx, time.Second); err != nil {
		return 0, 0, err
	}
	newcomers := load(stream, 0, 0, time.Second/floodNewRate)
	openCtx, stopOpening := context.WithCancel(ctx)
	defer stopOpening()
	if err := newcomers.start(openCtx); err != nil {
		return 0, 0, err
	}
	offered, reached, err = r.sendWatched(ctx)
	stopOpening()
	if err != nil {
		return 0, 0, err
	}
	if r.target.marks {
		if err := r.noteQueues(); err != nil {
			return 0, 0, err
		}
	}
	opened := newcomers.stop()
	if err := programs.Sleep(ctx, floodWait); err != nil {
		return 0, 0, err
	}
	stop()
	r.clients.newOK, r.clients.newAll = opened.Opened, opened.Opened+opened.Refused
	r.countFlows(staying, fragmented)
	return offered, reached, nil
}

// sendWatched sends the flood, and notes what links lost meanwhile, before or behind what is measured.
func (r *floodRun) sendWatched(ctx context.Context) (offered, reached float64, err error) {
	before, err := readNetLosses(r.Lab.Namespace("middle"))
	if err != nil {
		return 0, 0, err
	}
	if offered, reached, err = r.send(ctx, nil); err != nil {
		return 0, 0, err
	}
	after, err := readNetLosses(r.Lab.Namespace("middle"))
	if err != nil {
		return 0, 0, err
	}
	if n := since(before, after)[lossLink]; n > 0 {
		r.note(fmt.Sprintf("%d packets found the ring of a link full", n))
	}
	return offered, reached, nil
}

// noteQueues notes what found the balancer's queues full: it is lost for want of processor time, not of a table.
func (r *floodRun) noteQueues() error {
	dropped, err := queueDrops(r.Lab.Namespace("middle"))
	if err != nil {
		return err
	}
	if dropped > 0 {
		r.note(fmt.Sprintf("%d packets found the queue full", dropped))
	}
	return nil
}

// countFlows stops the flows that were there before the flood, and counts what they lost; fragmented may be nil.
func (r *floodRun) countFlows(staying, fragmented *flowLoad) {
	c := &r.clients
	counts := staying.stop()
	c.established, c.lost, c.sent, c.repeated = uint64(counts.Established), uint64(counts.Lost), counts.Requested, counts.Repeated
	if r.target.apart {
		c.wholeLost = counts.Repeated - min(counts.Repeated, counts.Late)
	}
	if counts.Why != "" {
		c.why = append(c.why, counts.Why)
	}
	if fragmented != nil {
		counts := fragmented.stop()
		c.fragmented, c.fragmentsLost = counts.Requested+counts.Repeated, counts.Repeated+counts.Requested-counts.Answered
		if late := min(counts.Late, c.fragmentsLost); late > 0 {
			c.fragmentsLost -= late
			r.note(fmt.Sprintf("%d fragmented datagrams were answered late", late))
		}
	}
}

// allocate starts TURN clients in a namespace.
func (r *floodRun) allocate(namespace string, clients int) (*generator, error) {
	args := turnClients(r.entry, clients, netip.MustParseAddrPort("10.82.2.1:0"), r.Host("middle"))
	return startGenerator(context.Background(), r.Running, r.Host(namespace), r.config.Binary, args...)
}

// floodTURN has allocations that relay, and new ones.
func (r *floodRun) floodTURN(ctx context.Context) (offered, reached float64, err error) {
	calls, err := r.allocate("clients", floodKeep)
	if err != nil {
		return 0, 0, fmt.Errorf("before the flood: %w", err)
	}
	defer calls.end(true)
	var counts turnCounts
	var ok, all uint64
	err = during(func() (err error) {
		offered, reached, err = r.send(ctx, nil)
		return err
	}, func() error {
		return counts.send(calls, 100, r.config.Duration+floodWait)
	}, func() error {
		for end := time.Now().Add(r.config.Duration); time.Now().Before(end) && ctx.Err() == nil; all++ {
			begin := time.Now()
			t, err := r.allocate("clients", 1)
			if err == nil {
				t.end(false)
				ok++
			} else {
				r.clients.why = append(r.clients.why, err.Error())
			}
			_ = programs.Sleep(ctx, time.Until(begin.Add(500*time.Millisecond)))
		}
		return nil
	})
	c := &r.clients
	c.newOK, c.newAll, c.established, c.lost = ok, all, floodKeep, min(floodKeep, counts.refused)
	c.sent, c.repeated = counts.sent, counts.lost
	return offered, reached, err
}

// probe asks /livez over a new connection.
func (r *floodRun) probe(ctx context.Context, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	conn, err := dialIn(r.Lab.Namespace(namespace), r.entry)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return conn, nil },
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.entry.String()+"/livez", nil)
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	response, err := client.Do(request)
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	defer response.Body.Close() //nolint:errcheck // it is over
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}

func dialIn(host *netlab.Host, to netip.AddrPort) (conn net.Conn, err error) {
	err = host.Do(func() error {
		conn, err = (&net.Dialer{Timeout: 2 * time.Second}).Dial("tcp", to.String())
		return err
	})
	return conn, err
}

// floodProbes opens connections that have asked once and stay, and meanwhile probes.
func (r *floodRun) floodProbes(ctx context.Context) (offered, reached float64, err error) {
	wanted := int(r.rate())
	attacker := r.Lab.Namespace("attacker")
	var idle []net.Conn
	defer func() {
		for _, conn := range idle {
			conn.Close()
		}
	}()
	begin := time.Now()
	for range wanted {
		if ctx.Err() != nil {
			return 0, 0, ctx.Err()
		}
		conn, err := dialIn(attacker, r.entry)
		if err != nil {
			r.clients.why = append(r.clients.why, err.Error())
			break
		}
		_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
		if _, err := io.WriteString(conn, "GET /livez HTTP/1.1\r\nHost: probes\r\n\r\n"); err == nil {
			_, _ = conn.Read(make([]byte, 512)) // closed at once: it does not count as idle, but it was tried
		}
		idle = append(idle, conn)
	}
	elapsed := time.Since(begin).Seconds()
	c := &r.clients
	for end := time.Now().Add(r.config.Duration); time.Now().Before(end); {
		if err := r.probe(ctx, "clients"); err == nil {
			c.newOK++
		} else if len(c.why) == 0 {
			c.why = append(c.why, err.Error())
		}
		c.newAll++
		if err := programs.Sleep(ctx, 200*time.Millisecond); err != nil {
			return 0, 0, err
		}
	}
	r.note(fmt.Sprintf("%d connections in %.1f s", len(idle), elapsed))
	return float64(wanted), float64(len(idle)), nil
}

func firstReasons(why []string) []string {
	why = slices.Compact(slices.Clone(why))
	return why[:min(len(why), 2)]
}
