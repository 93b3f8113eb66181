package redundancy

import (
	"context"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// table is a flow table in memory.
type table struct {
	mu      sync.Mutex
	pending []flow.Change // for each follower that comes
	next    []flow.Change // for the one that is there
	entered []string
	ended   []uint32
	refuse  flow.Refusal
	number  uint32
}

func (t *table) FollowFlows() func(func(uint64) bool, func([]flow.Change) bool) {
	first := true
	return func(_ func(uint64) bool, yield func([]flow.Change) bool) {
		t.mu.Lock()
		changes := t.next
		t.next = nil
		if first {
			changes, first = append(slices.Clone(t.pending), changes...), false
		}
		t.mu.Unlock()
		if len(changes) > 0 {
			yield(changes)
		}
	}
}

func (t *table) EnterFlows(_ uint64, flows []flow.Translated, answers []flow.Answer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, f := range flows {
		t.number++
		answers[i] = flow.Answer{Entry: flow.Entry{Number: t.number, Fingerprint: 9}, Refusal: t.refuse}
		t.entered = append(t.entered, fmt.Sprintf("%s %s/%s %s %s", f.Key, f.Service, f.Backend, f.Server, f.Left))
	}
}

func (t *table) EndFlow(e flow.Entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = append(t.ended, e.Number)
}

func (t *table) GivenFlows() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.entered)
}

func (t *table) change(number uint32, port int, ended bool) flow.Change {
	return flow.Change{Number: number, Ended: ended, Flow: flow.Translated{
		Key:     flow.NewKey(netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), uint16(port)), netip.MustParseAddrPort("192.0.2.1:80"), lb.UDP),
		Service: "web", Backend: "a", Server: netip.MustParseAddrPort("10.1.0.1:7000"), Left: time.Duration(port) * time.Second,
	}}
}

// node is a running Sync.
type node struct {
	*Sync
	table *table
	stop  func()
}

func address(t *testing.T, ip string) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", ip+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return netip.MustParseAddrPort(l.Addr().String())
}

func start(t *testing.T, self, peer netip.AddrPort, key string, hold time.Duration) *node {
	t.Helper()
	name := "WEIR_TEST_" + key
	t.Setenv(name, hex.EncodeToString([]byte(strings.Repeat(key, 32))))
	snapshot := &lb.Snapshot{Sync: &lb.Sync{Listen: self, Peers: []netip.AddrPort{peer}, KeyEnv: name, HoldOff: hold}}
	n := &node{table: &table{}}
	n.Sync = New(Options{Table: n.table, Applied: func() (*lb.Snapshot, <-chan struct{}) { return snapshot, nil }})
	ended := make(chan struct{})
	ctx, cancel := contextOf(t)
	go func() {
		defer close(ended)
		n.Run(ctx)
	}()
	n.stop = sync.OnceFunc(func() { cancel(); <-ended })
	t.Cleanup(n.stop)
	return n
}

// until waits for a state of the only peer.
func (n *node) until(t *testing.T, what string, ok func(*v1.SyncStatus, *v1.SyncPeer) bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		s := n.Status()
		if s != nil && ok(s, &s.Peers[0]) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not come: %+v", what, s)
		}
	}
}

// All state comes in the order of its changes, and everything again after a connection; a node that has just started is complete once it
// has the state of its peer.
func TestStateOfFlowsReachesThePeer(t *testing.T) {
	at, bt := address(t, "127.0.0.2"), address(t, "127.0.0.3")
	a := start(t, at, bt, "k", time.Hour)
	if a.until(t, "a status", func(*v1.SyncStatus, *v1.SyncPeer) bool { return true }); !strings.Contains(a.Incomplete(), bt.String()) {
		t.Errorf("incomplete: %q", a.Incomplete())
	}
	for i := range 1500 {
		a.table.pending = append(a.table.pending, a.table.change(uint32(i), 1+i, false))
	}
	b := start(t, bt, at, "k", time.Hour)
	b.until(t, "the bulk transfer", func(s *v1.SyncStatus, p *v1.SyncPeer) bool { return s.Complete && p.In.Received == 1500 })
	a.until(t, "the acknowledgement", func(s *v1.SyncStatus, p *v1.SyncPeer) bool {
		return s.Complete && p.Out.Complete && p.Out.Sent == 1500 && p.Out.Lag > 0 && p.Out.Lost == 0
	})
	if n := b.table.entered; n[0] != "udp 10.0.0.1:1 > 192.0.2.1:80 web/a 10.1.0.1:7000 1s" || n[1499] != "udp 10.0.0.1:1500 > 192.0.2.1:80 web/a 10.1.0.1:7000 25m0s" {
		t.Errorf("%s, %s", n[0], n[1499])
	}
	a.table.mu.Lock()
	a.table.next = []flow.Change{a.table.change(3, 0, true), a.table.change(4, 9000, false), a.table.change(3, 9001, false), a.table.change(4, 0, true)}
	a.table.mu.Unlock()
	b.until(t, "the changes", func(_ *v1.SyncStatus, p *v1.SyncPeer) bool { return p.In.Ended == 2 })
	if n := b.table.ended; !slices.Equal(n, []uint32{4, 5, 1501}) { // the entry of 3; the first one of 4, which has another flow; that
		t.Errorf("ended %v", n)
	}
	b.stop()
	a.until(t, "the loss", func(_ *v1.SyncStatus, p *v1.SyncPeer) bool { return !p.Out.Connected && p.Out.Losses == 1 })
	b = start(t, bt, at, "k", time.Hour)
	b.table.refuse = flow.UnknownService
	b.until(t, "everything again", func(s *v1.SyncStatus, p *v1.SyncPeer) bool {
		return s.Complete && p.In.Received >= 1500 && p.In.Refused["unknown_service"] > 0
	})
	a.until(t, "what was refused", func(_ *v1.SyncStatus, p *v1.SyncPeer) bool { return p.Out.Refused > 0 })
}

// Who has another key, no key or another address gets nothing; addresses do not wait for ever for a peer that is not there.
func TestStrangersGetNothing(t *testing.T) {
	at, bt := address(t, "127.0.0.4"), address(t, "127.0.0.5")
	a := start(t, at, bt, "k", time.Nanosecond)
	a.until(t, "the end of the hold-off", func(s *v1.SyncStatus, _ *v1.SyncPeer) bool { return s.Complete })
	a.table.pending = append(a.table.pending, a.table.change(1, 1, false))
	b := start(t, bt, at, "x", time.Hour)
	a.until(t, "the refusal", func(s *v1.SyncStatus, p *v1.SyncPeer) bool {
		return s.Rejected > 0 && strings.Contains(p.Out.Error, "another key") && strings.Contains(p.In.Error, "the same key")
	})
	b.stop()
	if len(b.table.entered) > 0 {
		t.Errorf("%v", b.table.entered)
	}
	for _, from := range []string{"127.0.0.5", "127.0.0.6"} { // the peer without certificate, and another machine
		before := a.Status().Rejected
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		conn, err := dialer.Dial("tcp", at.String())
		if err != nil {
			t.Fatal(err)
		}
		secured := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13})
		secured.Handshake()
		if got, _ := io.ReadAll(secured); len(got) > 0 {
			t.Errorf("%s got %x", from, got)
		}
		conn.Close()
		a.until(t, "the rejection", func(s *v1.SyncStatus, _ *v1.SyncPeer) bool { return s.Rejected > before })
	}
}

func contextOf(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithCancel(t.Context())
}
