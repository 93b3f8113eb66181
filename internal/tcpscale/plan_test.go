package tcpscale

import (
	"fmt"
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestWorkersFor(t *testing.T) {
	for _, c := range []struct {
		n     int
		files uint64
		want  int
	}{{100000, 20000, 6}, {1000000, 20000, 52}, {1, 20000, 1}, {19500, 20000, 1}, {19501, 20000, 2}, {100000, 1 << 20, 1}} {
		if got := WorkersFor(c.n, c.files); got != c.want {
			t.Errorf("%d with %d files: %d workers, want %d", c.n, c.files, got, c.want)
		}
	}
}

func TestClientWorkersSpread(t *testing.T) {
	config := clientDefaults
	config.Targets, config.Connections, config.Rate = []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:1")}, 100001, 6000
	configs, err := ClientWorkers(config, 8, 28232)
	if err != nil {
		t.Fatal(err)
	}
	total, waiting, seen := 0, 0, map[netip.Addr]bool{}
	for _, c := range configs {
		total += c.Client.Connections
		if c.Client.Wait {
			waiting++
		}
		if c.Client.Rate != 1000 {
			t.Errorf("rate %v", c.Client.Rate)
		}
		for _, s := range c.Client.Sources {
			if seen[s] || !s.IsLoopback() {
				t.Errorf("source %v", s)
			}
			seen[s] = true
		}
	}
	if total != 100001 || waiting != 2 || len(seen) != 16 {
		t.Errorf("%d connections, %d waiting, sources %v", total, waiting, seen)
	}
	config.Connections = 11000
	if configs, err = ClientWorkers(config, 2, 28232); err != nil || len(configs[0].Client.Sources) != 0 {
		t.Errorf("one source is enough for 11000: %v, %v", configs[0].Client.Sources, err)
	}
}

// Apart: a target and a range of source ports for each worker, so that no one needs more addresses than the others.
func TestWorkersApart(t *testing.T) {
	config, server := clientDefaults, ServerConfig{Apart: true}
	for port := range uint16(52) {
		config.Targets = append(config.Targets, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), 1000+port))
	}
	server.Listen, config.Connections, config.Apart = config.Targets, 1000000, true
	for ports, sources := range map[int]int{28232: 2, 64512: 0} {
		configs, err := ClientWorkers(config, 52, ports)
		if err != nil {
			t.Fatal(err)
		}
		servers, total := ServerWorkers(server, 52), 0
		for i, c := range configs {
			total += c.Client.Connections
			if len(c.Client.Targets) != 1 || c.Client.Targets[0] != config.Targets[i] || len(servers[i].Server.Listen) != 1 || servers[i].Server.Listen[0] != config.Targets[i] {
				t.Errorf("worker %d: targets %v, listens on %v", i, c.Client.Targets, servers[i].Server.Listen)
			}
			if got := c.Client.Sources; len(got) != sources || sources > 0 && got[0] != configs[0].Client.Sources[0] {
				t.Errorf("worker %d with %d ports: sources %v", i, ports, got)
			}
		}
		if n := tuples(configs); total != 1000000 || n != 52*max(sources, 1) {
			t.Errorf("%d connections, %d ranges of ports", total, n)
		}
	}
	if configs, err := ClientWorkers(config, 104, 28232); err != nil || configs[52].Client.Targets[0] != config.Targets[0] ||
		configs[52].Client.Sources[0] == configs[0].Client.Sources[0] {
		t.Errorf("two workers of a target share sources: %v", err)
	}
}

func TestSources(t *testing.T) {
	got, err := Sources([]netip.Prefix{netip.MustParsePrefix("192.0.2.64/30"), netip.MustParsePrefix("198.51.100.7/32")})
	if err != nil || len(got) != 3 || got[0].String() != "192.0.2.65" || got[1].String() != "192.0.2.66" || got[2].String() != "198.51.100.7" {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := Sources([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}); err == nil {
		t.Error("16 million sources are taken")
	}
}

func TestSourcePortsOutsideTheKernelsAreRefused(t *testing.T) {
	low, _ := ephemeralRange()
	c := ClientConfig{PortLow: uint16(low - 10), PortHigh: uint16(low + 10)}
	if _, err := c.sourcePorts(); err == nil {
		t.Error("taken; the kernel would ignore it")
	}
}

// Each ceiling of the study is named, with its multiples.
func TestPlateausAreNamed(t *testing.T) {
	for n, want := range map[int]int{1024: 1024, 1020: 1024, 28232: 28232, 64512: 64512, 64000: 64000, 16 * 64512: 16 * 64512, 50000: 50000, 55000: 55000, 131072: 131072, 262144: 262144, 56464: 56464, 8000: 8000, 16000: 16000} {
		f := Finder{}
		r := Report{Connections: Connections{Target: 10 * n, Established: n}, Failures: map[string]uint64{"timeout": 5}}
		f.Watch(0, &r)
		if p := f.Watch(4*time.Second, &r); p != nil {
			t.Errorf("%d: a plateau after 4 s", n)
		}
		r.Failures = map[string]uint64{"timeout": 9}
		p := f.Watch(6*time.Second, &r)
		if p == nil || p.At != want || p.Remedy != Timeout.Remedy() || !strings.HasPrefix(p.Ceiling, "possibly ") || !strings.Contains(p.Ceiling, "; or a quota of another kind") {
			t.Errorf("%d: %+v", n, p)
		}
	}
	nobody := Finder{}
	refused := Report{Connections: Connections{Target: 10}}
	nobody.Watch(0, &refused)
	refused.Failures = map[string]uint64{"refused": 10}
	if p := nobody.Watch(6*time.Second, &refused); p == nil || p.At != 0 || p.Kind != "refused" || p.Remedy != Refused.Remedy() || p.Ceiling != "no connection gets through" || !strings.Contains(p.Text, Refused.Remedy()) {
		t.Errorf("no program listens: %+v", p)
	}
	if name, ok := share(7000); ok {
		t.Errorf("7000 is %q", name)
	}
	f := Finder{}
	r := Report{At: time.Unix(100, 0), Connections: Connections{Target: 10000, Established: 1024}}
	f.Watch(0, &r)
	if p := f.Watch(10*time.Second, &r); p != nil {
		t.Errorf("a plateau, and no one has reported since: %+v", p)
	}
	r.At = time.Unix(106, 0)
	if p := f.Watch(11*time.Second, &r); p == nil {
		t.Error("no plateau after a report of 6 s later")
	}
	f, r = Finder{}, Report{Connections: Connections{Target: 9000, Established: 7000}}
	f.Watch(0, &r)
	if p := f.Watch(6*time.Second, &r); p == nil || p.Ceiling == "unknown" && p.At != 0 {
		t.Errorf("%+v", p)
	}
}

// A number is looked up only where the failures fit, and a limit that was hit comes first.
func TestCeilingsNeedEvidence(t *testing.T) {
	for _, c := range []struct {
		name         string
		n            int
		kind         Failure
		limits       []string
		serverLimits []string
		want         string
	}{
		{"resets on a starved loopback", 8136, Reset, nil, nil, "no known ceiling: attempts end as reset"},
		{"a tester without processor time", 5120, Starved, nil, nil, "no ceiling of the path: this machine"},
		{"evictions", 5120, Evicted, nil, nil, "no known ceiling: the server evicts"},
		{"a server that hangs", 64000, Hung, nil, nil, "no ceiling of the path: the server's program hangs"},
		{"refusals", 1024, Refused, nil, nil, "no known ceiling: attempts end as refused"},
		{"unanswered SYNs", 1024, Timeout, nil, nil, "possibly default allocation of a node behind Azure Load Balancer (pool of up to 50); or a quota"},
		{"alternatives", 128000, Timeout, nil, nil, "possibly 2 × 64000: "},
		{"a quota", 777, Timeout, nil, nil, "unknown"},
		{"a limit of 300 files", 292, OutOfFiles, nil, nil, "open files: 300 for each of 1 workers"},
		{"a limit and unanswered SYNs", 64512, Timeout, []string{"accept: too many open files"}, nil, "limit hit: accept: too many open files"},
		{"the server's files", 491, Unanswered, nil, []string{"accept: too many open files"}, "the server's limit: accept: too many open files"},
		{"the server's files, not known", 1024, Unanswered, nil, nil, "what the server's program takes: its open files, or its accept queue"},
	} {
		f := Finder{Files: 300, Workers: 1, Ports: 28232, Tuples: 1, ServerLimits: c.serverLimits}
		r := Report{Connections: Connections{Target: 10 * c.n, Established: c.n}, LimitsHit: c.limits}
		f.Watch(0, &r)
		r.Failures = map[string]uint64{c.kind.String(): 9}
		if p := f.Watch(6*time.Second, &r); p == nil || !strings.HasPrefix(p.Ceiling, c.want) || c.kind != Timeout && c.kind != OutOfFiles && p.At != 0 || c.want == "unknown" && p.At != 0 {
			t.Errorf("%s: %+v, want %q", c.name, p, c.want)
		}
	}
}

// An even trickle and unanswered SYNs is a limit on new connections per second; an even ramp alone is none.
func TestRateLimitIsFound(t *testing.T) {
	for _, c := range []struct {
		name             string
		opened, timeouts []uint64 // of each second
		want             float64
	}{
		{"50 a second", []uint64{40, 50, 52, 49, 50, 51, 50, 50}, []uint64{0, 90, 90, 80, 90, 90, 90, 90}, 50},
		{"a slow ramp", []uint64{50, 50, 50, 50, 50, 50, 50, 50}, []uint64{0, 0, 0, 0, 0, 0, 0, 0}, 0},
		{"bursts", []uint64{500, 0, 500, 0, 500, 0, 500, 0}, []uint64{9, 9, 9, 9, 9, 9, 9, 9}, 0},
		{"a quota", []uint64{500, 524, 0, 0, 0, 0, 0, 0}, []uint64{0, 9, 9, 9, 9, 9, 9, 9}, 0},
	} {
		var l limiter
		var got float64
		r := Report{Connections: Connections{Target: 100000}, Failures: map[string]uint64{}}
		for i := range c.opened {
			r.Totals.Opened += c.opened[i]
			r.Failures["timeout"] += c.timeouts[i]
			got = max(got, l.watch(time.Duration(i)*time.Second, &r))
		}
		if math.Abs(got-c.want) > 2 {
			t.Errorf("%s: %v a second, want %v", c.name, got, c.want)
		}
	}
}

// Where 14,116 connections have all even ports, the next one need not look through them again: a connect takes the next port of
// either parity.
func TestConnectsTakePortsOfBothParities(t *testing.T) {
	var name unix.Utsname
	var major, minor int
	if err := unix.Uname(&name); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(string(name.Release[:]), "%d.%d", &major, &minor); err != nil || major < 6 || major == 6 && minor < 8 {
		t.Skipf("Linux %s looks through the ports of one parity first", name.Release[:])
	}
	p := newPair(t, func(*ClientConfig, *ServerConfig) {})
	p.up()
	odd := 0
	for i := range p.client.fresh {
		address, err := unix.Getsockname(int(p.client.slots.at(i).fd))
		if err != nil {
			t.Fatal(err)
		}
		odd += address.(*unix.SockaddrInet4).Port % 2
	}
	if odd == 0 || odd == 100 {
		t.Errorf("%d of 100 ports are odd", odd)
	}
}
