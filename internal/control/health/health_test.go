package health

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-lb/weir/internal/steering/lb"
)

func TestVerdictNeedsResultsInARow(t *testing.T) {
	v := verdict{rise: 2, fall: 3}
	for i, step := range []struct {
		well, changed, down bool
	}{
		{true, false, false},
		{false, false, false},
		{false, false, false},
		{true, false, false}, // two failures, then well
		{false, false, false},
		{false, false, false},
		{false, true, true},
		{false, false, true},
		{true, false, true},
		{false, false, true},
		{true, false, true},
		{true, true, false},
		{true, false, false},
	} {
		if changed := v.observe(step.well); changed != step.changed || v.down != step.down {
			t.Fatalf("step %d: changed %t, down %t; want %+v", i, changed, v.down, step)
		}
	}
}

func snapshot(t *testing.T, h *lb.HealthSpec, addresses ...string) *lb.Snapshot {
	t.Helper()
	weight := 1
	spec := lb.Spec{MaglevSize: 251, Services: []lb.ServiceSpec{{Name: "s", Health: h}}}
	vip := lb.VIPSpec{Protocol: lb.Protocol(lb.UDP), Port: lb.PortRange{First: 7, Last: 7}}
	if err := vip.Address.UnmarshalText([]byte("192.0.2.1")); err != nil {
		t.Fatal(err)
	}
	spec.Services[0].VIPs = []lb.VIPSpec{vip}
	for _, a := range addresses {
		spec.Services[0].Backends = append(spec.Services[0].Backends, lb.BackendSpec{Name: "b" + a, Address: netip.MustParseAddr(a), Weight: &weight})
	}
	s, err := lb.Compile(spec, nil, lb.AllCaps())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Many backends that die together are reported together, a refused report is offered again, and a backend that leaves
// the snapshot loses its override.
func TestProberReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		state := map[lb.Target]lb.Override{}
		refuse := errors.New("not now")
		refused := 0
		report := func(batch map[lb.Target]lb.Override) error {
			mu.Lock()
			defer mu.Unlock()
			if refuse != nil {
				refused++
				refuse = nil
				return errors.New("not now")
			}
			for target, value := range batch {
				state[target] = value
			}
			return nil
		}
		p := New(t.Context(), func(context.Context, *Probe) error { return errors.New("dead") }, nil, report)
		h := &lb.HealthSpec{Type: lb.ProbeTCP, Port: 80, Interval: time.Second, Timeout: 100 * time.Millisecond}
		p.Follow(snapshot(t, h, "10.0.0.1", "10.0.0.2"))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		one, two := lb.Target{Service: "s", Backend: "b10.0.0.1"}, lb.Target{Service: "s", Backend: "b10.0.0.2"}
		mu.Lock()
		if state[one] != lb.OverrideDown || state[two] != lb.OverrideDown || refused != 1 {
			t.Errorf("state %v, refused %d", state, refused)
		}
		mu.Unlock()
		p.Follow(snapshot(t, h, "10.0.0.1"))
		time.Sleep(time.Second)
		synctest.Wait()
		mu.Lock()
		if state[one] != lb.OverrideDown || state[two] != lb.NoOverride {
			t.Errorf("state after b left: %v", state)
		}
		mu.Unlock()
		p.Stop()
	})
}

// A probe that hangs ends with its time-out and counts as a failure; never more than maxInFlight run.
func TestProbesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		running, maximum := 0, 0
		hang := func(ctx context.Context, _ *Probe) error {
			mu.Lock()
			running++
			maximum = max(maximum, running)
			mu.Unlock()
			<-ctx.Done()
			mu.Lock()
			running--
			mu.Unlock()
			return ctx.Err()
		}
		down := 0
		p := New(t.Context(), hang, nil, func(batch map[lb.Target]lb.Override) error {
			mu.Lock()
			defer mu.Unlock()
			down += len(batch)
			return nil
		})
		var addresses []string
		for i := range 300 {
			addresses = append(addresses, netip.AddrFrom4([4]byte{10, 0, byte(i / 250), byte(1 + i%250)}).String())
		}
		p.Follow(snapshot(t, &lb.HealthSpec{Type: lb.ProbeTCP, Port: 80, Interval: time.Second, Timeout: 900 * time.Millisecond, Fall: 1}, addresses...))
		time.Sleep(4 * time.Second) // no longer than all need: the race detector may crash after thousands of timers in a bubble (golang/go#78156)
		synctest.Wait()
		mu.Lock()
		if maximum != maxInFlight || down != 300 {
			t.Errorf("%d at one time, %d reported", maximum, down)
		}
		mu.Unlock()
		p.Stop()
	})
}

// server answers UDP datagrams until the test ends.
func server(t *testing.T, answer func([]byte) []byte) netip.AddrPort {
	t.Helper()
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		b := make([]byte, 2048)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			conn.WriteToUDPAddrPort([]byte("noise"), from)
			if reply := answer(b[:n]); reply != nil {
				conn.WriteToUDPAddrPort(reply, from)
			}
		}
	}()
	return conn.LocalAddr().(*net.UDPAddr).AddrPort()
}

// closed is a port on which nothing listens while the test runs: a connection between two other sockets has it.
func closed(t *testing.T, network string, other netip.AddrPort) netip.AddrPort {
	t.Helper()
	conn, err := net.Dial(network, other.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return netip.MustParseAddrPort(conn.LocalAddr().String())
}

func coapReset(b []byte) []byte {
	if len(b) != 4 || b[0] != 0x40 || b[1] != 0 {
		return nil
	}
	return []byte{0x70, 0, b[2], b[3]}
}

func stunAnswer(b []byte) []byte {
	if len(b) != 20 || binary.BigEndian.Uint16(b) != 1 || binary.BigEndian.Uint32(b[4:]) != 0x2112a442 {
		return nil
	}
	reply := append([]byte{}, b...)
	reply[0], reply[1] = 1, 1
	return reply
}

func TestNetworkProbes(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/moved":
			http.Redirect(w, r, "http://192.0.2.1/", http.StatusFound)
		case r.URL.Path == "/host" && r.Host != "example.org", r.URL.Path == "/bad":
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer web.Close()
	site := netip.MustParseAddrPort(web.Listener.Addr().String())
	coap, stun := server(t, coapReset), server(t, stunAnswer)
	wrong := server(t, func(b []byte) []byte { return append([]byte{b[0] ^ 0xff}, b[1:]...) })
	for _, c := range []struct {
		name   string
		health lb.Health
		target netip.AddrPort
		well   bool
	}{
		{"tcp", lb.Health{Probe: lb.ProbeTCP}, site, true},
		{"tcp refused", lb.Health{Probe: lb.ProbeTCP}, closed(t, "tcp", site), false},
		{"http", lb.Health{Probe: lb.ProbeHTTP, Path: "/"}, site, true},
		{"http redirect is an answer", lb.Health{Probe: lb.ProbeHTTP, Path: "/moved"}, site, true},
		{"http other status", lb.Health{Probe: lb.ProbeHTTP, Path: "/", Status: 204}, site, false},
		{"http error", lb.Health{Probe: lb.ProbeHTTP, Path: "/bad"}, site, false},
		{"http host", lb.Health{Probe: lb.ProbeHTTP, Path: "/host", Host: "example.org"}, site, true},
		{"http without host", lb.Health{Probe: lb.ProbeHTTP, Path: "/host"}, site, false},
		{"udp", lb.Health{Probe: lb.ProbeUDP, Send: []byte("hello")}, wrong, true},
		{"udp refused", lb.Health{Probe: lb.ProbeUDP, Send: []byte("hello")}, closed(t, "udp", coap), false},
		{"coap", lb.Health{Probe: lb.ProbeCoAP}, coap, true},
		{"coap, wrong answers", lb.Health{Probe: lb.ProbeCoAP}, wrong, false},
		{"coap refused", lb.Health{Probe: lb.ProbeCoAP}, closed(t, "udp", coap), false},
		{"stun", lb.Health{Probe: lb.ProbeSTUN}, stun, true},
		{"stun, wrong answers", lb.Health{Probe: lb.ProbeSTUN}, wrong, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			timeout := 20 * time.Second // a loaded machine is no failure
			if c.target == wrong && !c.well {
				timeout = 200 * time.Millisecond // silence is the answer
			}
			ctx, cancel := context.WithTimeout(context.Background(), timeout)
			defer cancel()
			if err := new(Network).Probe(ctx, &Probe{Health: c.health, Address: c.target}); (err == nil) != c.well {
				t.Errorf("error %v, want well %t", err, c.well)
			}
		})
	}
}

// Each probe is counted with its duration under its service and its result, until the service is gone.
func TestProbesAreTimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		probe := func(_ context.Context, p *Probe) error {
			time.Sleep(30 * time.Millisecond)
			if p.Address.Addr() == netip.MustParseAddr("10.0.0.2") {
				return errors.New("dead")
			}
			return nil
		}
		p := New(t.Context(), probe, nil, func(map[lb.Target]lb.Override) error { return nil })
		h := &lb.HealthSpec{Type: lb.ProbeTCP, Port: 80, Interval: time.Second, Timeout: 100 * time.Millisecond}
		p.Follow(snapshot(t, h, "10.0.0.1", "10.0.0.2"))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		for _, result := range []string{"pass", "fail"} {
			took := p.Durations()[Result{"s", result}]
			if n := took.Count(); n < 9 || n > 10 || took.Sum() != time.Duration(n)*30*time.Millisecond {
				t.Errorf("%s: %d probes of %s", result, n, took.Sum())
			}
		}
		p.Follow(snapshot(t, nil, "10.0.0.1"))
		if left := p.Durations(); len(left) != 0 {
			t.Errorf("of a service without probes: %v", left)
		}
		p.Stop()
	})
}
