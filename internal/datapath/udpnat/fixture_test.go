package udpnat_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/datapath/udpnat"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// testTimeout bounds waits that end at once unless something is broken.
const testTimeout = 15 * time.Second

// intent replaces the control loop: it compiles and applies what the console changes at once.
type intent struct {
	datapath *udpnat.Datapath

	mu        sync.Mutex
	spec      lb.Spec
	overrides *lb.Overrides
	applied   uint64
}

func (i *intent) Spec() (lb.Spec, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.spec, true
}

func (i *intent) SetSpec(spec lb.Spec) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.applyLocked(spec, i.overrides)
}

func (i *intent) SetOverrides(from lb.Overrider, values map[lb.Target]lb.Override) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	next := i.overrides
	for t, v := range values {
		next = next.With(t, from, v)
	}
	return i.applyLocked(i.spec, next)
}

func (i *intent) applyLocked(spec lb.Spec, overrides *lb.Overrides) error {
	snapshot, err := lb.Compile(spec, overrides, udpnat.Caps())
	if err != nil {
		return err
	}
	snapshot.Generation = i.applied + 1
	if err := i.datapath.Apply(snapshot); err != nil {
		return err
	}
	i.spec, i.overrides, i.applied = spec, overrides, i.applied+1
	return nil
}

// clock is the injected time.
type clock struct{ now atomic.Int64 }

func (c *clock) Now() time.Duration { return time.Duration(c.now.Load()) }

// fixture is a running NAT before some backends.
type fixture struct {
	t        testing.TB
	datapath *udpnat.Datapath
	intent   *intent
	console  *udpnat.Console
	clock    *clock
	vip      netip.AddrPort
	backends []*backend
	exited   atomic.Bool
}

// advance moves the clock and lets every worker see it.
func (f *fixture) advance(d time.Duration) {
	f.datapath.Stats() // what the kernel forwarded until now
	f.clock.now.Add(int64(d))
	f.datapath.Stats()
}

func start(t testing.TB, config udpnat.Config, backends int, changes ...func(*lb.Spec)) *fixture {
	t.Helper()
	f := &fixture{t: t, clock: &clock{}, vip: netlabtest.UDPAddress(t)}
	f.clock.now.Store(int64(time.Hour))
	service := lb.ServiceSpec{Name: "nat", VIPs: udpnat.ListenSpec(f.vip), Timeouts: lb.TimeoutsSpec{UDP: lb.Timeout(30 * time.Second)}}
	for i := range backends {
		b := newBackend(t, i)
		f.backends = append(f.backends, b)
		service.Backends = append(service.Backends, udpnat.BackendSpec(b.name, b.addr))
	}
	spec := lb.Spec{MaglevSize: 2039, Services: []lb.ServiceSpec{service}}
	for _, change := range changes {
		change(&spec)
	}
	if config.Now == nil {
		config.Now = f.clock.Now
	}
	if config.Workers == 0 {
		config.Workers = 2
	}
	config.OnLiveness = func(target lb.Target, silent bool) {
		value := lb.NoOverride
		if silent {
			value = lb.OverrideDown
		}
		if err := f.intent.SetOverrides(lb.FromDatapath, map[lb.Target]lb.Override{target: value}); err != nil {
			t.Error(err)
		}
	}
	offloaded(t, &config)
	var err error
	if f.datapath, err = udpnat.Open(config); err != nil {
		t.Fatal(err)
	}
	f.intent = &intent{datapath: f.datapath}
	f.console = udpnat.NewConsole(f.datapath, f.intent, udpnat.ConsoleOptions{
		Resolve: func(_ context.Context, text string) (netip.AddrPort, error) { return netip.ParseAddrPort(text) },
		Exit:    func() { f.exited.Store(true) },
	})
	if err := f.intent.SetSpec(spec); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.datapath.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := f.datapath.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// do runs a console command that must work.
func (f *fixture) do(line string) string {
	f.t.Helper()
	answer, err := f.console.Execute(context.Background(), line)
	if err != nil {
		f.t.Fatalf("%s: %v", line, err)
	}
	return answer
}

// eventually waits for what the data path does in its own time.
func (f *fixture) eventually(what string, is func() bool) {
	f.t.Helper()
	netlabtest.Eventually(f.t, what, is, func() string {
		stats := f.datapath.Stats()
		return fmt.Sprintf("%s\n%s\noffload %+v", stats.Info(), stats.Table(), stats.Offload)
	})
}

func (f *fixture) counters() udpnat.Counters { return f.datapath.Stats().Counters }

func (f *fixture) state(b *backend) udpnat.BackendState {
	for _, s := range f.datapath.Stats().Backends {
		if s.Name == b.name {
			return s.State
		}
	}
	f.t.Fatalf("no backend %s", b.name)
	return 0
}

// backend answers every datagram with its number and the datagram, as long as it is not mute.
type backend struct {
	t     testing.TB
	index byte
	conn  *net.UDPConn
	addr  netip.AddrPort
	name  string
	mute  atomic.Bool

	mu   sync.Mutex
	from netip.AddrPort // of the last datagram
	seen int
	got  [][]byte
}

func newBackend(t testing.TB, index int) *backend {
	t.Helper()
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadBuffer(4 << 20)
	b := &backend{t: t, index: byte(index), conn: conn, addr: conn.LocalAddr().(*net.UDPAddr).AddrPort()}
	b.addr = netip.AddrPortFrom(b.addr.Addr().Unmap(), b.addr.Port())
	b.name = b.addr.String()
	t.Cleanup(func() { conn.Close() })
	go b.serve(conn)
	return b
}

func (b *backend) serve(conn *net.UDPConn) {
	buffer := make([]byte, 1<<16)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(buffer[1:])
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // a client's socket is gone
		}
		mute := b.mute.Load() // before it is counted: who has seen the count may change it for the next one
		b.mu.Lock()
		b.from = from
		b.seen++
		if len(b.got) < 100 {
			b.got = append(b.got, bytes.Clone(buffer[1:1+n]))
		}
		b.mu.Unlock()
		if mute {
			continue
		}
		buffer[0] = b.index
		if n == 65507 { // no room for the number
			_, _ = conn.WriteToUDPAddrPort(buffer[1:1+n], from)
		} else {
			_, _ = conn.WriteToUDPAddrPort(buffer[:1+n], from)
		}
	}
}

func (b *backend) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.seen
}

func (b *backend) lastFrom() netip.AddrPort {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.from
}

func (b *backend) payloads() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []string
	for _, p := range b.got {
		all = append(all, string(p))
	}
	return all
}

// client is one UDP client of the NAT.
type client struct {
	t        testing.TB
	conn     *net.UDPConn
	repeated string // what was asked more than once: more than one answer may come
}

func (f *fixture) client() *client { return newClient(f.t, f.vip) }

func newClient(t testing.TB, to netip.AddrPort) *client {
	t.Helper()
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &client{t: t, conn: conn}
}

func (c *client) send(payload []byte) {
	c.t.Helper()
	if _, err := c.conn.Write(payload); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) receive() ([]byte, error) {
	buffer := make([]byte, 1<<16)
	_ = c.conn.SetReadDeadline(time.Now().Add(testTimeout))
	n, err := c.conn.Read(buffer)
	return buffer[:n], err
}

// nothing checks that no datagram waits for the client, once the NAT has done all its work. It looks, and does not wait: a
// deadline may be over before the first look.
func (c *client) nothing() {
	c.t.Helper()
	raw, err := c.conn.SyscallConn()
	if err != nil {
		c.t.Fatal(err)
	}
	n, got := 0, unix.EAGAIN
	if err := raw.Control(func(fd uintptr) {
		length, _, err := unix.Recvfrom(int(fd), make([]byte, 1<<16), unix.MSG_DONTWAIT)
		n = length
		if err == nil {
			got = 0
		}
	}); err != nil {
		c.t.Fatal(err)
	}
	if got == 0 {
		c.t.Fatalf("got %d bytes that are not for it", n)
	}
}

// exchange sends and returns the number of the backend that answered with the same bytes. The kernel may drop a datagram where
// others flood the machine: then it asks again, as any client would.
func (c *client) exchange(payload string) int {
	c.t.Helper()
	got, err := c.retry([]byte(payload))
	if err != nil {
		c.t.Fatalf("no answer to %q: %v", payload, err)
	}
	if len(got) != len(payload)+1 || string(got[1:]) != payload {
		c.t.Fatalf("asked %q, got %q", payload, got)
	}
	return int(got[0])
}

// retry sends until an answer comes, which is not one to what was asked twice before.
func (c *client) retry(payload []byte) ([]byte, error) {
	buffer := make([]byte, 1<<16)
	var err error
	for end := time.Now().Add(testTimeout); time.Now().Before(end); {
		if _, err = c.conn.Write(payload); err != nil {
			return nil, err
		}
		for again := time.Now().Add(testTimeout / 4); ; {
			_ = c.conn.SetReadDeadline(again)
			var n int
			if n, err = c.conn.Read(buffer); err != nil {
				break
			}
			if answer := buffer[:n]; n == 0 || c.repeated == "" || string(answer[1:]) != c.repeated || c.repeated == string(payload) {
				return answer, nil
			}
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, err
		}
		c.repeated = string(payload)
	}
	return nil, err
}

func text(i int) string { return fmt.Sprintf("datagram %d", i) }
