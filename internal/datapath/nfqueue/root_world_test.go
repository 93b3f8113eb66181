package nfqueue

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

const (
	vip4, vip6 = "10.96.0.1", "fd96::1"
	// servicePort is where backends answer.
	servicePort = 7000
	firstMark   = 101
)

// world is a client, a balancer, and backends that own the VIP on lo and answer as themselves (direct server return):
//
//	client 10.61.0.2 ── 10.61.0.1 balancer 10.62.i.1 ── 10.62.i.2 backend i, VIP
//
// Packets to the VIP meet NFQUEUE in table mangle; mark 101+i routes to backend i.
type world struct {
	t        testing.TB
	client   *netlab.Host
	balancer *netlab.Host
	backends []*netlab.Host
	d        *Datapath

	mu       sync.Mutex
	arrived  []arrival
	news     chan struct{} // capacity 1
	injector int           // AF_PACKET socket of the client
	index    int
	hardware [6]byte
}

// arrival is what a backend's socket got.
type arrival struct {
	backend int
	kind    string // udp, icmp or icmpv6
	from    netip.AddrPort
	payload []byte
}

func backendName(i int) string { return fmt.Sprintf("b%d", i) }

func worldTopology(backends int) netlab.Topology {
	prefix := netip.MustParsePrefix
	quiet := func(names ...string) (settings []netlab.Sysctl) {
		for _, name := range names {
			settings = append(settings, netlab.Sysctl{Key: "net.ipv4.conf." + name + ".rp_filter", Value: "0"})
		}
		return settings
	}
	balancer := netlab.Namespace{Name: "balancer", Forward: true, Sysctls: quiet("all", "in0")}
	t := netlab.Topology{Name: "nfqw"}
	t.Namespaces = append(t.Namespaces, netlab.Namespace{Name: "client", Routes: netlab.Default("10.61.0.1", "fd61::1")})
	t.Links = append(t.Links, netlab.Cable("client eth0 10.61.0.2/24 fd61::2/64", "balancer in0 10.61.0.1/24 fd61::1/64"))
	for i := range backends {
		at4, at6 := fmt.Sprintf("10.62.%d.", i), fmt.Sprintf("fd62:%x::", i)
		dev := fmt.Sprintf("be%d", i)
		balancer.Sysctls = append(balancer.Sysctls, quiet(dev)...)
		for _, r := range []struct {
			all, via string
			is6      bool
		}{{"0.0.0.0/0", at4 + "2", false}, {"::/0", at6 + "2", true}} {
			balancer.Routes = append(balancer.Routes, netlab.Route{To: prefix(r.all), Via: netip.MustParseAddr(r.via), Table: firstMark + i})
			balancer.Rules = append(balancer.Rules, netlab.Rule{IPv6: r.is6, Mark: uint32(firstMark + i), Table: firstMark + i})
		}
		t.Namespaces = append(t.Namespaces, netlab.Namespace{
			Name: backendName(i), Loopback: netlab.Prefixes(vip4+"/32", vip6+"/128"), Sysctls: quiet("all", "eth0"),
			Routes: netlab.Default(at4+"1", at6+"1"),
		})
		t.Links = append(t.Links, netlab.Cable("balancer "+dev+" "+at4+"1/24 "+at6+"1/64", backendName(i)+" eth0 "+at4+"2/24 "+at6+"2/64"))
	}
	t.Namespaces = append(t.Namespaces, balancer)
	return t
}

// newWorld builds it, with queues 0 to queues-1 and their rules, and a data path that is open but has no snapshot.
func newWorld(t testing.TB, backends, queues int, config Config, ruleOptions ...string) *world {
	t.Helper()
	netlabtest.Root(t)
	netlabtest.Tools(t, "iptables", "ip6tables")
	lab := netlabtest.Up(t, worldTopology(backends))
	w := &world{t: t, client: lab.Namespace("client"), balancer: lab.Namespace("balancer"), news: make(chan struct{}, 1)}
	for i := range backends {
		w.backends = append(w.backends, lab.Namespace(backendName(i)))
		w.serve(i)
	}
	target := []string{"--queue-num", "0"}
	if queues > 1 {
		target = []string{"--queue-balance", fmt.Sprintf("0:%d", queues-1)}
	}
	for command, vip := range map[string]string{"iptables": vip4, "ip6tables": vip6} {
		args := append([]string{"-w", "-t", "mangle", "-A", "PREROUTING", "-i", "in0", "-d", vip, "-j", "NFQUEUE"}, target...)
		if out, err := w.balancer.Exec(context.Background(), command, append(args, ruleOptions...)...); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
	}
	var err error
	if w.injector, err = w.openInjector(); err != nil {
		t.Fatal(err)
	}
	config.Count = queues
	if err := w.balancer.Do(func() (err error) { w.d, err = Open(config); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = unix.Close(w.injector)
		if err := w.d.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// run applies a snapshot and serves until the test ends.
func (w *world) run(spec string) {
	w.t.Helper()
	w.apply(spec)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	d := w.d
	go func() { ended <- d.Run(ctx) }()
	w.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Error(err)
		}
	})
}

func (w *world) apply(spec string) {
	w.t.Helper()
	if err := w.d.Apply(compile(w.t, spec)); err != nil {
		w.t.Fatal(err)
	}
}

// worldSpec is a service on the VIPs with these backends (by number); more is added to the service.
func worldSpec(more string, backends ...int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "hash_key: 000102030405060708090a0b0c0d0e0f\nlimits: {held_fragments: 256, held_per_datagram: 64}\nservices:\n- name: pool\n  mode: mark\n  vips:\n")
	for _, vip := range []string{vip4, vip6} {
		for _, protocol := range []string{"tcp", "udp"} {
			fmt.Fprintf(&b, "  - {address: %q, protocol: %s, port: any}\n", vip, protocol)
		}
	}
	if more != "" {
		fmt.Fprintf(&b, "  %s\n", more)
	}
	b.WriteString("  backends:\n")
	for _, i := range backends {
		fmt.Fprintf(&b, "  - {name: %s, mark: %d}\n", backendName(i), firstMark+i)
	}
	return b.String()
}

// serve has backend i answer: TCP echoes behind its name, UDP answers its name and what came, and everything that UDP and
// ICMP sockets get is remembered.
func (w *world) serve(i int) {
	w.t.Helper()
	host := w.backends[i]
	if err := host.Do(func() error {
		for _, vip := range []string{vip4, vip6} {
			address := net.JoinHostPort(vip, fmt.Sprint(servicePort))
			l, err := net.Listen("tcp", address)
			if err != nil {
				return err
			}
			w.t.Cleanup(func() { _ = l.Close() })
			go w.echo(l, i)
			u, err := net.ListenPacket("udp", address)
			if err != nil {
				return err
			}
			if err := u.(*net.UDPConn).SetReadBuffer(4 << 20); err != nil {
				return err
			}
			w.t.Cleanup(func() { _ = u.Close() })
			go w.read(u, i, "udp")
		}
		for network, vip := range map[string]string{"ip4:icmp": vip4, "ip6:ipv6-icmp": vip6} {
			c, err := net.ListenPacket(network, vip)
			if err != nil {
				return err
			}
			w.t.Cleanup(func() { _ = c.Close() })
			go w.read(c, i, map[string]string{vip4: "icmp", vip6: "icmpv6"}[vip])
		}
		return nil
	}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) echo(l net.Listener, i int) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		w.t.Cleanup(func() { _ = c.Close() })
		go func() {
			defer c.Close()
			if _, err := io.WriteString(c, backendName(i)+"\n"); err == nil {
				_, _ = io.Copy(c, c)
			}
		}()
	}
}

func (w *world) read(c net.PacketConn, i int, kind string) {
	b := make([]byte, 1<<16)
	for {
		n, from, err := c.ReadFrom(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // an ICMP error about an answer
		}
		a := arrival{backend: i, kind: kind, payload: bytes.Clone(b[:n])}
		if u, ok := from.(*net.UDPAddr); ok {
			a.from = u.AddrPort()
			if n < 1000 {
				_, _ = c.WriteTo(append([]byte(backendName(i)+" "), b[:n]...), from)
			}
		}
		w.mu.Lock()
		w.arrived = append(w.arrived, a)
		w.mu.Unlock()
		select {
		case w.news <- struct{}{}:
		default:
		}
	}
}

// where sends until something of that kind with these bytes in it arrives, and returns which backends got it: one, if all
// is well. What was sent may be lost on the way, so it is sent again.
func (w *world) where(kind string, payload []byte, send func()) (backend int) {
	w.t.Helper()
	for range 20 {
		send()
		again := time.After(time.Second)
		for waiting := true; waiting; {
			if found := w.whoGot(kind, payload); len(found) > 0 {
				for i := range found {
					backend = i
				}
				if len(found) > 1 {
					w.t.Fatalf("several backends got one datagram: %v", found)
				}
				return backend
			}
			select {
			case <-w.news:
			case <-again:
				waiting = false
			}
		}
	}
	w.t.Fatalf("%s of %d bytes never arrived; %+v", kind, len(payload), w.d.Stats())
	return 0
}

func (w *world) whoGot(kind string, payload []byte) map[int]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	found := map[int]bool{}
	for i := range w.arrived {
		a := &w.arrived[i]
		if a.kind == kind && (bytes.Equal(a.payload, payload) || kind != "udp" && bytes.Contains(a.payload, payload)) {
			found[a.backend] = true
		}
	}
	return found
}

// openInjector makes a socket that puts IP packets of any kind onto the client's wire.
func (w *world) openInjector() (fd int, err error) {
	if _, w.hardware, err = w.balancer.Interface("in0"); err != nil {
		return 0, err
	}
	if w.index, _, err = w.client.Interface("eth0"); err != nil {
		return 0, err
	}
	err = w.client.Do(func() error {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		return err
	})
	return fd, err
}

func (w *world) inject(packets ...[]byte) {
	w.t.Helper()
	for _, p := range packets {
		protocol := uint16(unix.ETH_P_IP)
		if p[0]>>4 == 6 {
			protocol = unix.ETH_P_IPV6
		}
		to := &unix.SockaddrLinklayer{Protocol: protocol<<8 | protocol>>8, Ifindex: w.index, Halen: 6}
		copy(to.Addr[:], w.hardware[:])
		if err := unix.Sendto(w.injector, p, 0, to); err != nil {
			w.t.Fatal(err)
		}
	}
}
