package lb

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/client"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

const announceFile = `hash_key: 00112233445566778899aabbccddeeff
maglev_size: 1009
limits: {flows: 4096}
announce:
  bgp:
    as: 64512
    router_id: 10.2.0.%[1]d
    next_hop6: 2001:db8::2:%[1]x
    communities: ["64512:100", "64512:1:2"]
    report_after: 1s
    graceful_shutdown: %[3]s
    neighbours:
    - {address: 10.2.0.1, as: 64513, password_file: %[2]s, ttl_security: true, bfd: {interval: 80ms, multiplier: 3}}
services:
- name: web
  mode: l2dsr
  vips:
  - {address: 10.0.0.1, protocol: tcp, port: 5000}
  - {address: 10.0.0.1, protocol: udp, port: 5000}
  - {address: "2001:db8::1", protocol: tcp, port: 5000}
  health: {type: tcp, port: 7, interval: 100ms, fall: 2, rise: 1}
  backends:
  - {name: backend1, address: 10.2.0.101, address2: "2001:db8::2:65"}
  - {name: backend2, address: 10.2.0.102, address2: "2001:db8::2:66"}
`

const birdFile = `router id 10.2.0.1;
protocol device {}
protocol bfd { interface "eth0" { interval 80 ms; multiplier 3; }; }
protocol kernel { merge paths yes; ipv4 { export all; }; }
protocol kernel { merge paths yes; ipv6 { export all; }; }
protocol static { ipv4; route 203.0.113.0/24 blackhole; }
template bgp balancer {
  local 10.2.0.1 as 64513; connect retry time 1; error wait time 1, 2; password "secret"; bfd on; ttl security on; passive on;
  ipv4 { import all; export where source = RTS_STATIC; }; ipv6 { import all; export none; };
}
protocol bgp lb1 from balancer { neighbor 10.2.0.11 as 64512; }
protocol bgp lb2 from balancer { neighbor 10.2.0.12 as 64512; }
`

// announceLab is netlab.Cluster with one client, two backends and no routes to the VIPs.
func announceLab(t *testing.T) *netlab.Lab {
	t.Helper()
	names := []string{"segment", "router", "client1", "lb1", "lb2", "backend1", "backend2"}
	topology := netlab.Cluster()
	topology.Namespaces = slices.DeleteFunc(topology.Namespaces, func(n netlab.Namespace) bool { return !slices.Contains(names, n.Name) })
	topology.Links = slices.DeleteFunc(topology.Links, func(l netlab.Link) bool {
		return !slices.Contains(names, l.A.Namespace) || !slices.Contains(names, l.B.Namespace)
	})
	for i := range topology.Namespaces {
		if topology.Namespaces[i].Name == "router" {
			topology.Namespaces[i].Routes = nil
		}
	}
	return netlabtest.Up(t, topology)
}

// fib follows the routes of a router, as the kernel reports them.
type fib struct {
	t      *testing.T
	mu     sync.Mutex
	ways   map[netip.Prefix]int // gateways
	at     map[netip.Prefix]time.Time
	change chan struct{}
}

func watchFIB(t *testing.T, router *netlab.Host) *fib {
	t.Helper()
	f := &fib{t: t, ways: map[netip.Prefix]int{}, at: map[netip.Prefix]time.Time{}, change: make(chan struct{}, 1)}
	updates, done := make(chan netlink.RouteUpdate, 64), make(chan struct{})
	clitest.Must(t, router.Do(func() error { return netlink.RouteSubscribe(updates, done) }))
	t.Cleanup(func() { close(done) })
	go func() {
		for u := range updates {
			if u.Dst == nil {
				continue
			}
			address, _ := netip.AddrFromSlice(u.Dst.IP)
			bits, _ := u.Dst.Mask.Size()
			f.mu.Lock()
			prefix := netip.PrefixFrom(address.Unmap(), bits)
			ways := max(len(u.MultiPath), 1)
			if u.Type == unix.RTM_DELROUTE {
				ways = 0
			}
			f.ways[prefix], f.at[prefix] = ways, time.Now()
			f.mu.Unlock()
			select {
			case f.change <- struct{}{}:
			default:
			}
		}
	}()
	return f
}

// await waits until a prefix has that many gateways, and returns when the kernel said so.
func (f *fib) await(prefix string, ways int) time.Time {
	f.t.Helper()
	p := netip.MustParsePrefix(prefix)
	for timeout := time.After(60 * time.Second); ; {
		f.mu.Lock()
		now, at := f.ways[p], f.at[p]
		f.mu.Unlock()
		if now == ways {
			return at
		}
		select {
		case <-f.change:
		case <-timeout:
			f.t.Fatalf("%s has %d gateways, want %d", prefix, now, ways)
		}
	}
}

const vip4Prefix, vip6Prefix = "10.0.0.1/32", "2001:db8::1/128"

// probed answers the health probes of a backend; Close ends that.
func probed(t *testing.T, host *netlab.Host) net.Listener {
	t.Helper()
	var l net.Listener
	clitest.Must(t, host.Do(func() (err error) {
		l, err = net.Listen("tcp", ":7")
		return err
	}))
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	return l
}

// daemon runs a program of a router until the test ends, or end is called.
func daemon(t *testing.T, host *netlab.Host, name string, args ...string) (end func()) {
	t.Helper()
	cmd, out := exec.Command(name, args...), new(clitest.LockedBuffer)
	cmd.Stdout, cmd.Stderr = out, out
	clitest.Must(t, host.Start(cmd))
	end = sync.OnceFunc(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
	})
	t.Cleanup(func() {
		end()
		if t.Failed() {
			t.Logf("output of %s:\n%s", name, out)
		}
	})
	return end
}

// announcingLB starts a balancer of the lab.
func announcingLB(t *testing.T, lab *netlab.Lab, number int, password, graceful string) (*kernelLB, *client.Client) {
	t.Helper()
	k := newKernelLB(t, lab.Namespace(fmt.Sprintf("lb%d", number)), "tcx", "eth0", fmt.Sprintf(announceFile, 10+number, password, graceful))
	return k, client.New("unix:"+k.socket, "", "lb")
}

// lastLogged is the time of the last line with that text after it.
func (k *kernelLB) lastLogged(text string) time.Time {
	k.t.Helper()
	var lines [][]string
	netlabtest.Eventually(k.t, "a line with "+text, func() bool { // it may still be in the pipe
		lines = regexp.MustCompile(`time=(\S+) `+regexp.QuoteMeta(text)).FindAllStringSubmatch(k.out.String(), -1)
		return len(lines) > 0
	})
	at, err := time.Parse(time.RFC3339Nano, lines[len(lines)-1][1])
	clitest.Must(k.t, err)
	return at
}

func neighbourOf(s *v1.LBStatus) *v1.BGPNeighbour { return &s.Announce.BGP.Neighbours[0] }

// Addresses are in the router's table while they can be served, and only then; flows keep their backend when a balancer is gone; what is
// wrong with a session is told.
func TestRootAnnounceToBIRD(t *testing.T) {
	netlabtest.Tools(t, "bird", "birdc")
	clitest.TakesSeconds(t)
	lab := announceLab(t)
	dir := t.TempDir()
	password := filepath.Join(dir, "password")
	write := func(path, text string) { t.Helper(); clitest.Must(t, os.WriteFile(path, []byte(text), 0o600)) }
	write(password, "secret\n")
	write(filepath.Join(dir, "bird.conf"), birdFile)
	router := lab.Namespace("router")
	fib := watchFIB(t, router)
	for i := 1; i <= 2; i++ {
		answerAs(t, lab.Namespace(fmt.Sprintf("backend%d", i)), "10.0.0.1:5000", fmt.Sprintf("backend%d", i))
	}
	probes := []net.Listener{probed(t, lab.Namespace("backend1")), probed(t, lab.Namespace("backend2"))}
	control := filepath.Join(dir, "bird.ctl")
	daemon(t, router, "bird", "-f", "-c", filepath.Join(dir, "bird.conf"), "-s", control, "-P", filepath.Join(dir, "bird.pid"))
	lb1, admin1 := announcingLB(t, lab, 1, password, "0s")
	lb2, _ := announcingLB(t, lab, 2, password, "400ms")
	fib.await(vip4Prefix, 2)
	fib.await(vip6Prefix, 2)

	announcedTimes(t, fib, lb1, admin1)
	nothingAccepted(t, lab, lb1)
	lastBackendDead(t, fib, lab, probes, lb1, lb2)
	poweredOff(t, fib, lab)
	restartedAtRouter(t, fib, router, control)
	wrongPassword(t, fib, lb1, func(text string) { write(password, text) })

	// A planned end: first less preferred, then withdrawn, then the process ends.
	lb2.cmd.Process.Signal(syscall.SIGTERM)
	netlabtest.Eventually(t, "the community graceful-shutdown", func() bool {
		out, err := router.Exec(t.Context(), "birdc", "-s", control, "show", "route", "all", "protocol", "lb2")
		return err == nil && strings.Contains(out, "(65535,0)") && strings.Contains(out, "(64512,100)") && strings.Contains(out, "(64512, 1, 2)")
	})
	fib.await(vip4Prefix, 1)
	<-lb2.ended
	killed := time.Now()
	lb1.cmd.Process.Kill()
	t.Logf("kill -9: withdrawn after %v", fib.await(vip4Prefix, 0).Sub(killed))
}

// announcedTimes measures how soon the router has what an operator changes at one of two balancers.
func announcedTimes(t *testing.T, fib *fib, k *kernelLB, admin *client.Client) {
	t.Helper()
	var withdrawn, announced []time.Duration     // since the data path has applied the change
	const most, soon = 40, 10 * time.Millisecond // on a busy machine some of many have the processor in time
	for i := 0; i < 10 || i < most && (slices.Min(withdrawn) > soon || slices.Min(announced) > soon); i++ {
		for _, c := range []struct {
			do    func() (*v1.OverrideAnswer, error)
			ways  int
			times *[]time.Duration
		}{
			{func() (*v1.OverrideAnswer, error) { return admin.Down(t.Context(), "web", "") }, 1, &withdrawn},
			{func() (*v1.OverrideAnswer, error) { return admin.Undrain(t.Context(), "web", "") }, 2, &announced},
		} {
			if _, err := c.do(); err != nil {
				t.Fatal(err)
			}
			at := fib.await(vip4Prefix, c.ways)
			*c.times = append(*c.times, at.Sub(k.lastLogged(`level=INFO msg=override target=web from=operator`)))
		}
	}
	slices.Sort(withdrawn)
	slices.Sort(announced)
	t.Logf("from the change to the router's table: withdrawn %v, announced %v", withdrawn, announced)
	if withdrawn[0] > soon || announced[0] > soon {
		t.Errorf("the fastest of %d took more than %v", most, soon)
	}
}

// nothingAccepted: the router sends a route; no table of the balancer has it.
func nothingAccepted(t *testing.T, lab *netlab.Lab, k *kernelLB) {
	t.Helper()
	status := k.until("a route from the router", func(s *v1.LBStatus) bool { return neighbourOf(s).Received == 1 })
	if n := neighbourOf(status); n.State != "established" || n.Advertised != 2 || n.BFD != "up" || n.Problem != "" || len(status.Announce.BGP.Filtered) > 0 {
		t.Errorf("%+v", status.Announce.BGP)
	}
	out, err := lab.Namespace("lb1").Exec(t.Context(), "ip", "route", "show", "table", "all")
	if err != nil || strings.Contains(out, "203.0.113.0") {
		t.Errorf("the router's route was taken: %s, %v", out, err)
	}
}

// lastBackendDead: within a second after the probes have found the last backend dead, no router has the address.
func lastBackendDead(t *testing.T, fib *fib, lab *netlab.Lab, probes []net.Listener, balancers ...*kernelLB) {
	t.Helper()
	for i := range probes {
		probes[i].Close()
	}
	gone := fib.await(vip4Prefix, 0)
	fib.await(vip6Prefix, 0)
	var seen time.Time
	for _, k := range balancers {
		if at := k.lastLogged(`level=WARN msg="backend is down"`); at.After(seen) {
			seen = at
		}
	}
	t.Logf("withdrawn %v after the last backend was seen dead", gone.Sub(seen))
	if gone.Sub(seen) > time.Second || seen.IsZero() {
		t.Errorf("withdrawn %v after the last backend was seen dead", gone.Sub(seen))
	}
	for i := range probes {
		probed(t, lab.Namespace(fmt.Sprintf("backend%d", i+1)))
	}
	fib.await(vip4Prefix, 2)
	for _, k := range balancers { // one backend is enough for the address; flows are equal at both balancers when both have both
		k.until("all backends up", func(s *v1.LBStatus) bool {
			return !slices.ContainsFunc(s.Services[0].Backends, func(b v1.BackendStatus) bool { return b.State != "up" })
		})
	}
}

// poweredOff: one of two balancers is off. BFD finds out long before the hold time is over, and flows keep their backend.
func poweredOff(t *testing.T, fib *fib, lab *netlab.Lab) {
	t.Helper()
	var talkers []*talker
	for i := range 60 {
		network := "udp"
		if i < 20 {
			network = "tcp"
		}
		talkers = append(talkers, newTalker(t, lab.Namespace("client1"), network, "10.0.0.1:5000"))
	}
	off := time.Now()
	clitest.Must(t, lab.Namespace("segment").SetUp("to-lb1", false))
	dead := fib.await(vip4Prefix, 1).Sub(off)
	t.Logf("power-off: the route was gone after %v", dead)
	if dead > 2*time.Second {
		t.Errorf("BFD found out after %v", dead)
	}
	for _, k := range talkers {
		if err := k.say(); err != nil {
			t.Error(err)
		}
	}
	clitest.Must(t, lab.Namespace("segment").SetUp("to-lb1", true))
	fib.await(vip4Prefix, 2)
}

// restartedAtRouter: the router ends its sessions, and BFD with them, and opens them again. BFD of the balancers finds out when the sessions
// are gone already, which must not end the next ones.
func restartedAtRouter(t *testing.T, fib *fib, router *netlab.Host, control string) {
	t.Helper()
	for _, session := range []string{"lb1", "lb2"} {
		if out, err := router.Exec(t.Context(), "birdc", "-s", control, "restart", session); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		fib.await(vip4Prefix, 1)
		fib.await(vip4Prefix, 2)
	}
}

// wrongPassword: there is no error on the wire, so the balancer says what may be wrong.
func wrongPassword(t *testing.T, fib *fib, k *kernelLB, write func(string)) {
	t.Helper()
	write("other\n")
	k.cmd.Process.Signal(syscall.SIGHUP)
	fib.await(vip4Prefix, 1)
	status := k.until("a problem", func(s *v1.LBStatus) bool { return neighbourOf(s).Problem != "" })
	if n := neighbourOf(status); !strings.Contains(n.Problem, "password") || !strings.Contains(n.Problem, "AS 64512") || n.State == "established" {
		t.Errorf("%+v", n)
	}
	if out, code := clitest.Weir(t, "lb", "announce", "--admin", "unix:"+k.socket); code != 1 || !strings.Contains(out, "is the password the same on both sides") || !strings.Contains(out, "10.0.0.1/32") {
		t.Errorf("exit code %d: %s", code, out)
	}
	netlabtest.Eventually(t, "the problem in the log", func() bool {
		return bytes.Contains([]byte(k.out.String()), []byte(`msg="BGP needs attention" neighbour=10.2.0.1`))
	})
	write("secret\n")
	k.cmd.Process.Signal(syscall.SIGHUP)
	fib.await(vip4Prefix, 2)
}
