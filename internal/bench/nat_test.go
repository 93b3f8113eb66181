package bench

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// The load and the echo meet: every request is answered once, and the end of the context ends the echo.
func TestLoadAndEcho(t *testing.T) {
	at := netlabtest.UDPAddress(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Echo(ctx, at) }()
	load := udpLoad{To: at, Clients: 20, Requests: 2000, Payload: 8, Timeout: time.Second, Warmup: 2, Latency: measure.NewTimeline(time.Second), Before: time.Hour}
	var calls []string
	note := func(what string) func() error {
		return func() error { calls = append(calls, what); return nil }
	}
	result, err := load.Run(ctx, note("begin"), note("end"))
	if err != nil {
		t.Fatal(err)
	}
	if result.Requests != 2000 || result.Elapsed <= 0 || strings.Join(calls, " ") != "begin end" {
		t.Fatalf("%+v, calls %q", result, calls)
	}
	// The warm-up is not among the times, and the load began an hour into them.
	if samples, latency := load.Latency.End(time.Hour + result.Elapsed); latency.Count() != 2000 || latency.Min() <= 0 || len(samples) == 0 || samples[len(samples)-1].At <= time.Hour {
		t.Errorf("%d times, the shortest %v; %+v", latency.Count(), latency.Min(), samples)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// A request that is sent again has waited since it was sent first.
func TestARepeatedRequestCountsFromItsFirstTransmission(t *testing.T) {
	server, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go func() {
		buffer, seen := make([]byte, 64), 0
		for {
			n, from, err := server.ReadFromUDPAddrPort(buffer)
			if err != nil {
				return
			}
			if seen++; seen != 2 { // the first is the warm-up
				_, _ = server.WriteToUDPAddrPort(buffer[:n], from)
			}
		}
	}()
	const timeout = 50 * time.Millisecond
	load := udpLoad{To: server.LocalAddr().(*net.UDPAddr).AddrPort(), Clients: 1, Requests: 1, Payload: 8, Timeout: timeout, Latency: measure.NewTimeline(time.Second)}
	nothing := func() error { return nil }
	result, err := load.Run(t.Context(), nothing, nothing)
	if err != nil || result.Lost == 0 {
		t.Fatalf("%+v, %v", result, err)
	}
	if _, latency := load.Latency.End(result.Elapsed); latency.Count() != 1 || latency.Min() < timeout {
		t.Errorf("%d times, the shortest %v: the first transmission was %v before the second", latency.Count(), latency.Min(), timeout)
	}
}

// Answers that come later than the time-out are answers: with all requests under way in a slow path none is lost, and the load ends.
func TestLateAnswersAreNotLost(t *testing.T) {
	server, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	const clients, timeout = 50, 20 * time.Millisecond
	go func() {
		buffer, seen := make([]byte, 64), 0
		for {
			n, from, err := server.ReadFromUDPAddrPort(buffer)
			if err != nil {
				return
			}
			if seen++; seen > 2*clients { // the measured ones
				time.Sleep(timeout / 20) // the slow path itself: 50 requests take longer than the time-out
			}
			_, _ = server.WriteToUDPAddrPort(buffer[:n], from)
		}
	}()
	load := udpLoad{
		To: server.LocalAddr().(*net.UDPAddr).AddrPort(), Clients: clients, Requests: 2 * clients, Payload: 8, Timeout: timeout, Warmup: 1,
		Latency: measure.NewTimeline(time.Second),
	}
	nothing := func() error { return nil }
	result, err := load.Run(t.Context(), nothing, nothing)
	if err != nil {
		t.Fatal(err)
	}
	if _, latency := load.Latency.End(result.Elapsed); latency.Count() != 2*clients || latency.Max() < timeout {
		t.Errorf("%d times, the longest %v: no answer was late", latency.Count(), latency.Max())
	}
	if result.Lost > clients {
		t.Errorf("%d of %d datagrams were lost, and the path loses none", result.Lost, result.Requests)
	}
}

// A path that answers nothing is an error, not an endless run.
func TestLoadWithoutAnswer(t *testing.T) {
	silent, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	load := udpLoad{To: silent.LocalAddr().(*net.UDPAddr).AddrPort(), Clients: 1, Requests: 1, Payload: 8, Timeout: 2 * time.Millisecond, Latency: measure.NewTimeline(time.Second)}
	nothing := func() error { return nil }
	if _, err := load.Run(t.Context(), nothing, nothing); err == nil || !strings.Contains(err.Error(), "nothing answers") {
		t.Fatalf("got %v", err)
	}
}

func TestNATConfig(t *testing.T) {
	good := NATConfig{Clients: 10, Requests: 100, Rounds: 1, Payload: 64}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for _, change := range []func(*NATConfig){
		func(c *NATConfig) { c.Clients = 0 }, func(c *NATConfig) { c.Requests = 9 }, func(c *NATConfig) { c.Rounds = 0 },
		func(c *NATConfig) { c.Payload = 7 }, func(c *NATConfig) { c.Payload = 70000 },
	} {
		bad := good
		change(&bad)
		if bad.Validate() == nil {
			t.Errorf("took %+v", bad)
		}
	}
}

func TestMedian(t *testing.T) {
	if m := median([]float64{3, 1, 2}); m != 2 {
		t.Errorf("median %v", m)
	}
	if m := median([]float64{4, 1, 2, 3}); m != 2.5 {
		t.Errorf("median %v", m)
	}
}

func TestCPUOfATree(t *testing.T) {
	cpu, err := treeCPU(os.Getpid())
	if err != nil || cpu <= 0 {
		t.Fatalf("%v, %v", cpu, err)
	}
	if _, err := treeCPU(1<<22 - 1); err == nil {
		t.Fatal("a process that is not there")
	}
}

// The ports differ, and no socket for which the kernel chooses a port can take one before it is used.
func TestFreePortsDiffer(t *testing.T) {
	ports, err := freePorts(nil, 20)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		t.Fatal(err)
	}
	var low, high int
	if _, err := fmt.Sscan(string(text), &low, &high); err != nil {
		t.Fatal(err)
	}
	seen := map[netip.AddrPort]bool{}
	for _, p := range ports {
		if seen[p] {
			t.Fatalf("%v twice", p)
		}
		seen[p] = true
		if at := int(p.Port()); low > 20000 && at >= low && at <= high {
			t.Errorf("%v is of the range %d to %d, from which the kernel chooses", p, low, high)
		}
	}
}
