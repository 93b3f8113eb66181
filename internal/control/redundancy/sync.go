package redundancy

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// Table is the flow table of a data path. Its methods may be called from any goroutine.
type Table interface {
	// FollowFlows returns a function that yields what has changed since it was last called. What another balancer gave and no packet has
	// used here is left out if skip says so of its origin.
	FollowFlows() func(skip func(origin uint64) bool, yield func([]flow.Change) bool)
	// EnterFlows enters flows of another balancer, and writes what became of each.
	EnterFlows(origin uint64, flows []flow.Translated, answers []flow.Answer)
	// EndFlow ends a flow that was entered, unless packets have used it here.
	EndFlow(flow.Entry)
	// GivenFlows counts the flows that were entered and not used.
	GivenFlows() int
}

// Options of a Sync.
type Options struct {
	Log   *slog.Logger // nil: silent
	Table Table
	// Applied returns the snapshot in force (nil: none), and a channel that is closed when there is another one.
	Applied func() (*lb.Snapshot, <-chan struct{})
	// Completed is called, from any goroutine, when Incomplete may have changed. nil: nothing is.
	Completed func()
}

// Times of the link.
const (
	handshakeTimeout = 2 * time.Second
	retryEvery       = 300 * time.Millisecond
	aliveEvery       = 250 * time.Millisecond
	silence          = 2 * time.Second // a peer that says nothing for so long is gone
	minInterval      = 100 * time.Millisecond
	maxInterval      = 500 * time.Millisecond
	maxBulk          = 60 * time.Second // after a start, addresses wait no longer for a peer that is connected
)

// Sync shares the state of flows. Its methods may be called from any goroutine.
type Sync struct {
	options   Options
	log       *slog.Logger
	instance  uint64                   // of this process
	connected atomic.Pointer[[]uint64] // instances whose state comes in
	interval  atomic.Int64             // between two looks at the table

	mu       sync.Mutex // guards the rest
	settings *lb.Sync   // nil: nothing is shared
	started  time.Time  // when the first configuration with peers came
	complete bool       // and stays so
	failure  error
	rejected uint64
	peers    []*peer
}

// peer is another balancer. Sync.mu guards its fields.
type peer struct {
	address     netip.AddrPort
	out         v1.SyncSent
	in          v1.SyncReceived
	bulk        bool // its state has arrived once
	unknown     bool // something of this connection was refused that another configuration may accept
	handshaking bool
	incoming    net.Conn // nil: none
	instance    uint64   // of incoming
}

// New returns a Sync that does nothing before Run.
func New(options Options) *Sync {
	s := &Sync{options: options, log: cmp.Or(options.Log, slog.New(slog.DiscardHandler))}
	var b [8]byte
	rand.Read(b[:]) // never fails
	s.instance = binary.BigEndian.Uint64(b[:])
	s.connected.Store(new([]uint64))
	s.interval.Store(int64(minInterval))
	return s
}

// Run shares state as configured until ctx ends.
func (s *Sync) Run(ctx context.Context) {
	var settings *lb.Sync
	var key []byte
	stop := func() {}
	for {
		snapshot, changed := s.options.Applied()
		var now *lb.Sync
		if snapshot != nil {
			now = snapshot.Sync
		}
		var next []byte
		var err error
		if now != nil {
			next, err = Key(now)
		}
		if reflect.DeepEqual(settings, now) && bytes.Equal(key, next) {
			s.again()
		} else {
			stop()
			s.configure(now, err)
			settings, key = now, next
			stop = s.serve(ctx, now, key)
		}
		select {
		case <-ctx.Done():
			stop()
			return
		case <-changed:
		}
	}
}

// configure takes other settings; peers that stay keep their counts.
func (s *Sync) configure(settings *lb.Sync, err error) {
	s.mu.Lock()
	old := s.peers
	s.settings, s.peers, s.failure = settings, nil, err
	if settings != nil {
		if s.started.IsZero() {
			s.started = time.Now()
			time.AfterFunc(settings.HoldOff+time.Millisecond, s.changed)
			time.AfterFunc(maxBulk+time.Millisecond, s.changed)
		}
		for _, address := range settings.Peers {
			if i := slices.IndexFunc(old, func(p *peer) bool { return p.address == address }); i >= 0 {
				s.peers = append(s.peers, old[i])
				continue
			}
			s.peers = append(s.peers, &peer{address: address, in: v1.SyncReceived{Refused: map[string]uint64{}}})
		}
	}
	s.mu.Unlock()
	if err != nil {
		s.log.Error("the state of flows is not shared", "event", "sync_failed", "error", err)
	}
	s.changed()
}

// serve begins to share; what it returns ends that.
func (s *Sync) serve(ctx context.Context, settings *lb.Sync, key []byte) (stop func()) {
	if settings == nil || key == nil {
		return func() {}
	}
	secured, err := credentials(key)
	if err != nil {
		s.fail(err)
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() { s.listen(ctx, settings, secured) })
	s.mu.Lock()
	for _, p := range s.peers {
		group.Go(func() { s.send(ctx, settings, p, secured) })
	}
	s.mu.Unlock()
	return func() {
		cancel()
		group.Wait()
	}
}

func (s *Sync) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && (s.failure == nil || s.failure.Error() != err.Error()) {
		s.log.Error("the state of flows is not shared", "event", "sync_failed", "error", err)
	}
	s.failure = err
}

// again lets peers send everything once more after a change of the configuration, if something was refused that may fit now.
func (s *Sync) again() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.peers {
		if p.unknown && p.incoming != nil {
			p.unknown = false
			p.incoming.Close()
		}
	}
}

// skip reports whether a balancer sends its state itself.
func (s *Sync) skip(origin uint64) bool { return slices.Contains(*s.connected.Load(), origin) }

// connectedLocked notes which balancers send their state.
func (s *Sync) connectedLocked() {
	all := []uint64{}
	for _, p := range s.peers {
		if p.incoming != nil {
			all = append(all, p.instance)
		}
	}
	s.connected.Store(&all)
}

func (s *Sync) changed() {
	if s.options.Completed != nil {
		s.options.Completed()
	}
}

// Incomplete says why the state of the peers is not here yet, as addresses wait for it; empty: it is, or there is nothing to wait for. Once
// it is empty, it stays so.
func (s *Sync) Incomplete() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.incompleteLocked(time.Now())
}

func (s *Sync) incompleteLocked(now time.Time) string {
	if s.settings == nil || s.complete {
		return ""
	}
	for _, p := range s.peers {
		wait := s.settings.HoldOff
		if p.incoming != nil {
			wait = max(wait, maxBulk)
		}
		if !p.bulk && now.Sub(s.started) < wait {
			return fmt.Sprintf("the state of flows of peer %s has not arrived yet", p.address)
		}
	}
	s.complete = true
	return ""
}

// Status returns the present state; nil: nothing is configured to be shared.
func (s *Sync) Status() *v1.SyncStatus {
	s.mu.Lock()
	none := s.settings == nil
	s.mu.Unlock()
	if none {
		return nil
	}
	given := s.options.Table.GivenFlows()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.settings == nil {
		return nil
	}
	status := &v1.SyncStatus{
		Reason: s.incompleteLocked(time.Now()), Listen: s.settings.Listen.String(), Given: given, Rejected: s.rejected,
		Interval: time.Duration(s.interval.Load()).Seconds(), Peers: []v1.SyncPeer{},
	}
	status.Complete = status.Reason == ""
	if s.failure != nil {
		status.Error = s.failure.Error()
	}
	for _, p := range s.peers {
		in := p.in
		in.Refused = map[string]uint64{}
		for reason, n := range p.in.Refused {
			in.Refused[reason] = n
		}
		status.Peers = append(status.Peers, v1.SyncPeer{Address: p.address.String(), Out: p.out, In: in})
	}
	return status
}

// handshake runs TLS on a connection.
func handshake(ctx context.Context, conn *tls.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	return conn.HandshakeContext(ctx)
}
