package bench

import (
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/testbed/measure"
)

// Each place is read from its file, in both forms of it.
func TestNetLosses(t *testing.T) {
	l := netLosses{}
	l.addSNMP("Ip: InDiscards X OutDiscards\nIp: 1 50 2\nUdp: InDatagrams NoPorts InErrors RcvbufErrors SndbufErrors InCsumErrors\nUdp: 9 3 9 4 5 6\nUdpLite: RcvbufErrors\nUdpLite: 99\n")
	l.addSNMP("Ip6InDiscards\t10\nUdp6RcvbufErrors \t 40\nUdpLite6RcvbufErrors 7\n\n")
	l.addLinks("Inter-|   Receive | Transmit\n face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop\n  eth0: 1 2 3 400 5 6 7 8 9 10 11 1200 13 14 15 16\n    lo:0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n")
	want := netLosses{lossIP: 13, lossNoPort: 3, lossBuffer: 44, lossSend: 5, lossChecksum: 6, lossLink: 1600}
	for place, n := range want {
		if l[place] != n {
			t.Errorf("%s: %d, want %d", place, l[place], n)
		}
	}
	if len(l) != len(want) {
		t.Errorf("%v", l)
	}
	since := since(netLosses{lossIP: 13, lossBuffer: 40}, l)
	if since[lossBuffer] != 4 || since[lossSend] != 5 || len(since) != 5 {
		t.Errorf("%v", since)
	}
	if text := strings.Join(lossText(netLosses{lossBuffer: 4}, 7), ", "); text != lossBuffer+" 4, unexplained 3" {
		t.Error(text)
	}
}

// A datagram that is lost and a flow that is not listed miss the aim, and the table and the page say where.
func TestDumpVerdicts(t *testing.T) {
	run := func(phase dumpPhase, listed int) *measure.Result {
		r := &dumpRun{config: DumpConfig{Flows: 1000}}
		result := &measure.Result{Scenario: scenarioDump, Path: "nfqueue", Parameters: map[string]string{}}
		result.Figures = []measure.Figure{{Name: figureReached, Value: 5}, {Name: figureDumpingLost, Value: float64(phase.lost)}}
		r.judge(result, 1000, phase, dumpCounts{done: 1, listed: listed})
		return result
	}
	results := []*measure.Result{
		run(dumpPhase{sent: 10}, 1000),
		run(dumpPhase{sent: 10, lost: 2, where: []string{"full queue of netfilter 2"}}, 1000),
		run(dumpPhase{sent: 10}, 999),
	}
	if n := missedBy(results); n != 2 || results[0].Parameters[paramVerdict] != verdictReached {
		t.Errorf("%d failed, want 2; the first: %v", n, results[0].Parameters)
	}
	table, page := shown(t, results)
	for _, want := range []string{"2 of 10 datagrams lost (full queue of netfilter 2)", "999 of 1000 flows listed", "aim missed by 2"} {
		if !strings.Contains(table, want) || !strings.Contains(page, want) {
			t.Errorf("%q is missing in\n%s", want, table)
		}
	}
}

func TestDumpConfig(t *testing.T) {
	good := DumpConfig{Flows: 262144, Rate: 1e5, Duration: time.Second}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*DumpConfig){
		"--flows 1":     func(c *DumpConfig) { c.Flows = 1 },
		"--rate 1":      func(c *DumpConfig) { c.Rate = 1 },
		"--duration 0s": func(c *DumpConfig) { c.Duration = 0 },
		`--only "coap"`: func(c *DumpConfig) { c.Only = []string{"coap"} },
	} {
		c := good
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error about %s", err, want)
		}
	}
}
