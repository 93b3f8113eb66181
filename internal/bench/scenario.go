package bench

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/plot"
)

// Scenario is one thing that can be measured, as a value: its row in `weir bench list`, and how its results are shown. Writer and
// report take every table, picture and sentence from here; nothing else distinguishes scenarios.
type Scenario struct {
	v1.BenchScenario

	tables   func([]*measure.Result) []plot.Table
	pictures func([]*measure.Result) []plot.Figure // nil: bars for each figure
	notes    func([]*measure.Result) []string      // lines below the tables that the page shows in another form; may be nil
	method   func([]*measure.Result) string        // how the numbers came about; nil: the machine
	verdict  func([]*measure.Result) string        // the run in one sentence; nil: none
	missed   string                                // error of a run that missed its aims: how many of how many
	title    string                                // of the page; empty: the command
	plain    bool                                  // tables of words: aligned left, without a title in the text
}

// The names of the scenarios in their results.
const (
	scenarioDSR          = "dsr"
	scenarioNFQueue      = "nfqueue"
	scenarioFloods       = "floods"
	scenarioDump         = "dump"
	scenarioSoak         = "soak"
	scenarioRestart      = "restart"
	scenarioChaos        = "chaos"
	scenarioIdle         = "idle-crash"
	scenarioFailover     = "failover"
	scenarioKubeScale    = "kube-scale"
	scenarioKubeSessions = "kube-sessions"
	scenarioLive         = "ebpf-live"
	scenarioCoap         = "coap"
	scenarioNAT          = "nat"
	scenarioTurn         = "turn"       // one load, its connections and their sum
	scenarioTurnSweep    = "turn-sweep" // packet rates and costs by packet size
)

// scenarios is the table of all scenarios in the order of `weir bench list`. Those without a command are not listed: they are parts
// of others.
func scenarios() []Scenario {
	return slices.Concat(runScenarios(), survivalScenarios(), commandScenarios())
}

// runScenarios are those of `weir bench run`.
func runScenarios() []Scenario {
	return []Scenario{
		{
			BenchScenario: v1.BenchScenario{
				Name: scenarioDSR, Command: "weir bench run dsr", Needs: "root; iperf, iperf3, iptables, nftables",
				About: "TCP throughput, packet rate and CPU of the kernel data path compared with routing and DNAT",
			},
			tables: dsrTables, pictures: dsrPictures, notes: dsrNotes, method: dsrMethod,
		},
		{
			BenchScenario: v1.BenchScenario{
				Name: scenarioNFQueue, Command: "weir bench run nfqueue", Needs: "root; iperf, iptables, ethtool",
				About: "TCP, UDP, fragments, latency and CPU of the NFQUEUE data path compared with the same path without it",
			},
			tables: nfqTables, pictures: nfqPictures, method: nfqText,
		},
		{
			BenchScenario: v1.BenchScenario{
				Name: scenarioFloods, Command: "weir bench run floods", Needs: "root; iptables; for the peers java, turnserver",
				About: "real clients while every part is flooded: who gets through, what is lost, memory and CPU, compared with Scandium, conntrack and coturn",
			},
			tables: floodTables, pictures: floodPictures, notes: floodNotes, method: floodsMethod, verdict: floodsVerdict,
			plain: true, missed: "aims missed in %d of %d floods",
		},
		{
			BenchScenario: v1.BenchScenario{
				Name: scenarioDump, Command: "weir bench run dump", Needs: "root; iptables",
				About: "datagrams through a full flow table while weir lb flows lists it: how many are lost, and where",
			},
			tables: dumpTables, pictures: dumpPictures, method: dumpMethod, verdict: dumpVerdict,
			plain: true, missed: "aim missed by %d of %d data paths",
		},
		{
			BenchScenario: v1.BenchScenario{
				Name: scenarioSoak, Command: "weir bench run soak", Needs: "nothing; with root a network of its own and the kernel data path",
				About: "memory, goroutines, descriptors and tables of every part under a long mixed load: do they level off?",
			},
			tables: soakTables, pictures: soakPictures, method: soakMethod, verdict: soakVerdict,
			plain: true, missed: "%d of %d processes and loads missed the aim",
		},
	}
}

// survivalScenarios are those of `weir bench run` in which sessions outlive what happens to their servers.
func survivalScenarios() []Scenario {
	return []Scenario{
		{
			BenchScenario: v1.BenchScenario{
				Name: scenarioRestart, Command: "weir bench run restart", Needs: "nothing; with root a network of its own",
				About: "DTLS clients while their server is killed, restarted and upgraded: requests lost, new handshakes, longest wait",
			},
			tables: restartTables, pictures: restartPictures, method: restartMethod, verdict: restartVerdict,
			plain: true, missed: "aims missed or not proven by %d of %d kinds of events",
		},
		{
			BenchScenario: v1.BenchScenario{
				Name: scenarioChaos, Command: "weir bench run chaos", Needs: "root",
				About: "a cluster of CoAP nodes whose nodes are killed, upgraded, drained, stopped and cut off by a seeded script: answers, executions, handshakes, nonces",
			},
			tables: chaosTables, pictures: chaosPictures, method: chaosMethod, verdict: chaosVerdict,
			plain: true, missed: "aims missed or not proven by %d of %d runs",
		},
		{
			BenchScenario: v1.BenchScenario{
				Name: scenarioIdle, Command: "weir bench run idle-crash", Needs: "root",
				About: "a node of a CoAP cluster crashes whose DTLS sessions are idle: when are its clients served again?",
			},
			tables: idleTables, pictures: idlePictures, method: idleMethod, verdict: idleVerdict,
			plain: true, missed: "aims missed by %d of %d paths",
		},
		{
			BenchScenario: v1.BenchScenario{
				Name: scenarioFailover, Command: "weir bench run failover", Needs: "root; bird, birdc, ip, iptables",
				About: "one of two balancers behind a router is powered off: which flows are lost, and until when, by mode, compared with connection tracking",
			},
			tables: failoverTables, pictures: failoverPictures, notes: failoverNotes, method: failoverMethod, verdict: failoverVerdict,
			plain: true, missed: "aims missed or not proven by %d of %d measurements",
		},
		{
			BenchScenario: v1.BenchScenario{
				Name: scenarioKubeSessions, Command: "weir bench run kube-sessions", Needs: "root; make kubelab",
				About: "flows and TURN allocations of a Kubernetes cluster while its load balancer, operator, API server and Pods are replaced: what is lost",
			},
			tables: kubeSessionsTables, pictures: kubeSessionsPictures, method: kubeSessionsMethod, verdict: kubeSessionsVerdict,
			plain: true, missed: "aims missed by %d of %d events",
		},
		{
			BenchScenario: v1.BenchScenario{
				Name: scenarioKubeScale, Command: "weir bench run kube-scale", Needs: "root; make kubelab",
				About: "a large Kubernetes cluster that changes: from a Pod's readiness to the kernel's tables, memory and CPU of the operator, API requests",
			},
			tables: kubeScaleTables, method: kubeScaleMethod, verdict: kubeScaleVerdict,
			plain: true, missed: "aims missed by %d of %d runs",
		},
	}
}

// commandScenarios are those that have commands of their own.
func commandScenarios() []Scenario {
	return []Scenario{
		{BenchScenario: v1.BenchScenario{Name: "ebpf", Command: "weir bench ebpf", About: "nanoseconds per packet of the kernel data path, by BPF_PROG_TEST_RUN", Needs: "root"}},
		{
			BenchScenario: v1.BenchScenario{
				Name: scenarioLive, Command: "weir bench ebpf --live", Needs: "root; iptables",
				About: "packets per second of one core through the kernel data path, routing and DNAT",
			},
			tables: liveTables, pictures: livePictures, notes: failures, method: liveMethod,
		},
		{
			BenchScenario: v1.BenchScenario{
				Name: scenarioCoap, Command: "weir bench coap", Needs: "nothing",
				About: "CPU of a CoAP/DTLS request at its servers, forwarded between nodes or not",
			},
			tables: coapTables, notes: coapNotes,
		},
		{
			BenchScenario: v1.BenchScenario{
				Name: scenarioTurn, Command: "weir turn bench", Needs: "nothing; with root a network of its own; iperf, turnserver",
				About: "packets/s, loss, jitter, latency and CPU of the TURN gateway and turncat, compared with direct and coturn",
			},
			tables: turnTables, pictures: turnPictures, method: turnMethod,
		},
		{BenchScenario: v1.BenchScenario{Name: scenarioTurnSweep}, title: "weir turn bench --sweep", tables: sweepTables, pictures: sweepPictures, method: turnMethod},
		{
			BenchScenario: v1.BenchScenario{
				Name: scenarioNAT, Command: "weir bench nat", Needs: "nothing; with root also iptables",
				About: "CPU of a datagram forwarded in user space compared with socat and iptables",
			},
			tables: natTables, pictures: natPictures, method: natMethod,
		},
		{BenchScenario: v1.BenchScenario{
			Name: "tcp", Command: "weir tcp bench", Needs: "nothing; with root a network of its own, --via, --with",
			About: "TCP connections held: time to establish, memory and CPU of each, losses; by --via through balancers, --with compared with other testers",
		}},
		{BenchScenario: v1.BenchScenario{Name: "snat", Command: "weir snat lab", About: "connections that a path of NAT lets through, compared with the plan's", Needs: "root; nftables"}},
	}
}

// Scenarios lists what can be measured.
func Scenarios() []Scenario {
	return slices.DeleteFunc(scenarios(), func(s Scenario) bool { return s.Command == "" })
}

// scenarioOf finds the scenario of results by its name in them. One that is not known has no tables.
func scenarioOf(name string) Scenario {
	all := scenarios()
	i := slices.IndexFunc(all, func(s Scenario) bool { return s.Name == name })
	if i < 0 {
		return Scenario{BenchScenario: v1.BenchScenario{Name: name}}
	}
	return all[i]
}

// heading is the title of the scenario's page: the command that makes its results.
func (s *Scenario) heading() string {
	return cmp.Or(s.title, s.Command, "weir bench, "+s.Name)
}

// methodOf says how the results came about.
func (s *Scenario) methodOf(results []*measure.Result) string {
	if s.method != nil {
		return s.method(results)
	}
	m := results[0].Machine
	return fmt.Sprintf("%s: %s, %d cores, Linux %s", s.Name, m.CPU, m.Cores, m.Kernel)
}

// Verdicts on a result, in its parameter "verdict".
const (
	verdictReached = "reached"
	verdictMissed  = "missed"
	verdictPeer    = "peer" // somebody else's: it has no aims
	verdictLevel   = "levels off"
	verdictGrows   = "grows"
	verdictShort   = "too short to judge"
	verdictOK      = "nothing lost"
	verdictLost    = "lost"
	verdictVoid    = "VOID" // lost, but this program did not run for a while: nothing is proven then
)

// Keys of Result.Parameters that several scenarios share.
const (
	paramLoad    = "load"
	paramFamily  = "family"
	paramFailed  = "failed" // why there are no figures
	paramAbsent  = "not available"
	paramVerdict = "verdict"
	paramMissed  = "missed" // which aims
	paramNote    = "note"
	paramAbout   = "about"
	paramPeer    = "peer" // "yes": it is not Weir's
)

// missedBy counts the results that missed an aim or hold no figures because they failed.
func missedBy(results []*measure.Result) (missed int) {
	for _, r := range results {
		bad := []string{verdictMissed, verdictGrows, verdictLost, verdictVoid}
		if r.Parameters[paramFailed] != "" || slices.Contains(bad, r.Parameters[paramVerdict]) {
			missed++
		}
	}
	return missed
}

// Check is the error of a run in which something failed or an aim was missed. The results of a run are of one scenario.
func Check(results []*measure.Result) error {
	if failed := len(failures(results)); failed > 0 {
		return fmt.Errorf("%d of %d measurements failed", failed, len(results))
	}
	if missed := missedBy(results); missed > 0 {
		if s := scenarioOf(results[0].Scenario); s.missed != "" {
			return fmt.Errorf(s.missed, missed, len(results))
		}
	}
	return nil
}
