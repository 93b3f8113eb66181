package turn

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/cli/status/statustest"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
	"github.com/weir-lb/weir/internal/testbed/procstat"
	"github.com/weir-lb/weir/internal/turn/gateway"
	"github.com/weir-lb/weir/internal/turn/load"
)

// offloadLab is a client, a gateway and a peer in a namespace each. forward: the gateway is a router, for traffic that is not TURN.
func offloadLab(name string, forward bool) netlab.Topology {
	return netlab.Topology{
		Name: name,
		Namespaces: []netlab.Namespace{
			{Name: "client", Routes: []netlab.Route{netlab.Via("10.2.0.0/24", "10.1.0.1")}},
			{Name: "gateway", Forward: forward},
			{Name: "peer", Routes: []netlab.Route{netlab.Via("10.1.0.0/24", "10.2.0.1")}},
		},
		Links: []netlab.Link{
			netlab.Cable("client eth0 10.1.0.2/24", "gateway front 10.1.0.1/24"),
			netlab.Cable("peer eth0 10.2.0.2/24", "gateway back 10.2.0.1/24"),
		},
	}
}

const offloadGateway = `
realm: weir
auth: {mode: static, users: [{name: user1, password: passwd1}]}
listeners:
- {name: udp, protocol: udp, address: 10.1.0.1, port: 3478, relay: [10.2.0.1], routes: [peers]}
clusters:
- {name: peers, endpoints: [10.2.0.0/24]}
offload: {mode: %s}
`

// offloadRun is a gateway in a lab, with a load through it.
type offloadRun struct {
	*clitest.Process
	load *load.Load
}

func startOffloadRun(t testing.TB, lab *netlab.Lab, mode string, args ...string) *offloadRun {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gateway.yaml")
	if err := os.WriteFile(path, []byte(fmt.Sprintf(offloadGateway, mode)), 0o600); err != nil {
		t.Fatal(err)
	}
	args = append([]string{"turn", "gateway", "-c", path, "--workers", "1", "--drain-timeout", "1s"}, args...)
	r := &offloadRun{Process: clitest.StartIn(t, lab.Namespace("gateway"), "gateway", args...)}
	if err := lab.Namespace("client").Do(func() (err error) {
		r.load, err = load.Open(t.Context(), load.Config{
			Server: netip.MustParseAddrPort("10.1.0.1:3478"), User: "user1", Password: "passwd1", Clients: 4,
			Source: netip.MustParseAddr("10.1.0.2"), Sink: netip.MustParseAddrPort("10.2.0.2:0"),
			SinkIn: lab.Namespace("peer").Do, NoSegment: true, NoCoalesce: true,
		})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.load.Close() })
	return r
}

func (r *offloadRun) stats() (s gateway.Stats) {
	r.T.Helper()
	r.Status(&s)
	return s
}

// kernel reads the relay's own counters.
func (r *offloadRun) kernel() map[string]float64 {
	r.T.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", r.Socket)
	}}}
	answer, err := client.Get("http://localhost/metrics")
	if err != nil {
		r.T.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		r.T.Fatal(err)
	}
	statustest.CheckDescribed(r.T, "the gateway", string(text))
	found := map[string]float64{}
	for _, m := range regexp.MustCompile(`(?m)^weir_turn_offload_(?:packets_total\{end="(\w+)"\}|(channels)) (\S+)$`).FindAllStringSubmatch(string(text), -1) {
		n, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			r.T.Fatal(err)
		}
		found[m[1]+m[2]] = n
	}
	return found
}

// TestRootTurnOffload sends the same load through a gateway in user space and through both hooks of the kernel: nothing is
// damaged, the totals of the gateway are those of the load, and the kernel relays nearly all of it. When the clients have
// left, nothing is relayed in the kernel; a gateway that was killed leaves interfaces as they were.
func TestRootTurnOffload(t *testing.T) {
	if !clitest.OwnProcess(t) {
		return
	}
	for _, mode := range []string{"none", "tcx", "xdp"} {
		t.Run(mode, func(t *testing.T) {
			lab := netlabtest.Up(t, offloadLab("weiroff"+mode, false))
			r := startOffloadRun(t, lab, mode, "--no-supervisor")
			report, err := r.load.Run(t.Context(), load.Phase{Rate: 2000, Duration: time.Second, Direction: load.Both, Size: 300})
			if err != nil {
				t.Fatal(err)
			}
			stats, kernel := r.stats(), r.kernel()
			t.Logf("%s: up %d of %d, down %d of %d, gateway %+v, kernel %v", stats.Offload, report.Up.Sum.Received, report.Up.Sum.Sent,
				report.Down.Sum.Received, report.Down.Sum.Sent, stats.Totals, kernel)
			if report.Up.Sum.Received == 0 || report.Down.Sum.Received == 0 || report.Up.Sum.Damaged+report.Down.Sum.Damaged > 0 {
				t.Errorf("up %+v, down %+v", report.Up.Sum, report.Down.Sum)
			}
			// What the load received passed the gateway, by whichever way, and was counted.
			if stats.Totals.Up.Packets < report.Up.Sum.Received || stats.Totals.Down.Packets < report.Down.Sum.Received {
				t.Errorf("the gateway counted %+v and %+v", stats.Totals.Up, stats.Totals.Down)
			}
			if mode != "none" {
				if all := float64(report.Up.Sum.Received + report.Down.Sum.Received); kernel["channels"] != 4 || kernel["up"]+kernel["down"] < 0.9*all {
					t.Errorf("of %v packets the kernel relayed %v", all, kernel)
				}
				if !strings.Contains(stats.Offload, mode+" on front (requested)") {
					t.Errorf("the gateway says %q", stats.Offload)
				}
			}
			r.load.Close() // deletes the allocations
			netlabtest.Eventually(t, "the end of all channels", func() bool {
				return r.stats().Totals.Allocations == 0 && r.kernel()["channels"] == 0
			})
			after := r.stats().Totals
			if after.Up.Packets < stats.Totals.Up.Packets || after.Down.Packets < stats.Totals.Down.Packets {
				t.Errorf("totals went back: %+v, then %+v", stats.Totals, after)
			}
			if err := r.Cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			<-r.Ended
			netlabtest.Eventually(t, "interfaces without programs", func() bool {
				out, err := lab.Namespace("gateway").Exec(t.Context(), "ip", "-d", "link", "show", "front")
				if err != nil {
					t.Fatal(err)
				}
				return !strings.Contains(out, "prog/xdp")
			})
		})
	}
}

// TestRootTurnOffloadRestart kills the serving process: the next one enters the channels again.
func TestRootTurnOffloadRestart(t *testing.T) {
	if !clitest.OwnProcess(t) {
		return
	}
	lab := netlabtest.Up(t, offloadLab("weiroffagain", false))
	r := startOffloadRun(t, lab, "tcx")
	var before, now v1.TurnStatus
	r.Status(&before)
	if err := syscall.Kill(before.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	netlabtest.Eventually(t, "another process with all channels in the kernel", func() bool {
		if err := r.Admin.Get(t.Context(), "/status", nil, &now); err != nil || now.PID == before.PID {
			return false
		}
		return r.kernel()["channels"] == 4
	})
	report, err := r.load.Run(t.Context(), load.Phase{Rate: 500, Duration: time.Second, Direction: load.Both, Size: 300})
	if err != nil {
		t.Fatal(err)
	}
	if kernel := r.kernel(); report.Up.Sum.Received == 0 || report.Down.Sum.Received == 0 || kernel["up"] == 0 || kernel["down"] == 0 {
		t.Errorf("up %d of %d, down %d of %d, kernel %v", report.Up.Sum.Received, report.Up.Sum.Sent, report.Down.Sum.Received, report.Down.Sum.Sent, kernel)
	}
}

// BenchmarkTurnOffload sends as many datagrams as the machine takes, up, through a gateway in user space, through both hooks,
// and, to compare, through the kernel's router. us/packet is the processor time of everybody for a datagram that arrived,
// gateway-us/packet that of the gateway's process, ns/run that of the relay's program, which is part of the first.
func BenchmarkTurnOffload(b *testing.B) {
	for _, mode := range []string{"router", "none", "tcx", "xdp"} {
		b.Run(mode, func(b *testing.B) {
			lab := netlabtest.Up(b, offloadLab("weirbench"+mode, mode == "router"))
			var l *load.Load
			gatewayCPU := func() time.Duration { return 0 }
			if mode == "router" {
				if err := lab.Namespace("client").Do(func() (err error) {
					l, err = load.Open(b.Context(), load.Config{
						Clients: 4, Source: netip.MustParseAddr("10.1.0.2"), Sink: netip.MustParseAddrPort("10.2.0.2:0"),
						SinkIn: lab.Namespace("peer").Do, NoSegment: true, NoCoalesce: true,
					})
					return err
				}); err != nil {
					b.Fatal(err)
				}
				defer l.Close()
			} else {
				r := startOffloadRun(b, lab, mode, "--no-supervisor")
				l = r.load
				gatewayCPU = func() time.Duration {
					used, err := procstat.CPU(r.Cmd.Process.Pid)
					if err != nil {
						b.Fatal(err)
					}
					return used
				}
			}
			own := func() time.Duration {
				used, err := procstat.CPU(os.Getpid())
				if err != nil {
					b.Fatal(err)
				}
				return used
			}
			stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
			if err != nil {
				b.Fatal(err)
			}
			defer stats.Close()
			var packets, sent uint64
			var all, gateways, elapsed time.Duration
			for b.Loop() {
				before, gateway := own(), gatewayCPU()
				report, err := l.Run(b.Context(), load.Phase{Duration: 3 * time.Second, Direction: load.Up, Size: 100, Rate: benchRate})
				if err != nil {
					b.Fatal(err)
				}
				packets += report.Up.Sum.Received
				sent += report.Up.Sum.Sent
				elapsed += report.Elapsed
				gateways += gatewayCPU() - gateway
				all += own() - before + gatewayCPU() - gateway
			}
			b.ReportMetric(float64(all.Microseconds())/float64(packets), "us/packet")
			b.ReportMetric(float64(gateways.Microseconds())/float64(packets), "gateway-us/packet")
			b.ReportMetric(float64(packets)/elapsed.Seconds(), "packets/s")
			b.ReportMetric(relayTime(b), "ns/run")
			b.ReportMetric(100*float64(sent-packets)/float64(sent), "%lost")
		})
	}
}

// relayTime is how long one run of the relay's programs took, redirect left out.
func relayTime(b *testing.B) float64 {
	var runs uint64
	var took time.Duration
	for id, err := ebpf.ProgramGetNextID(0); err == nil; id, err = ebpf.ProgramGetNextID(id) {
		p, err := ebpf.NewProgramFromID(id)
		if err != nil {
			continue // gone meanwhile
		}
		if info, err := p.Info(); err == nil && strings.HasPrefix(info.Name, "weir_turn_") {
			if s, err := p.Stats(); err == nil {
				runs += s.RunCount
				took += s.Runtime
			}
		}
		p.Close()
	}
	if runs == 0 {
		return 0
	}
	return float64(took) / float64(runs)
}

const benchRate = 1e6 // more than the machine takes
