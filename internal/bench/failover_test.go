package bench

import (
	"math"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/testbed/measure"
)

// lostAt is a UDP flow that lives, some of whose datagrams were lost at times after the power-off.
func lostAt(times ...time.Duration) *failoverFlow {
	f := &failoverFlow{clientFlow: &clientFlow{}, owner: "a", answered: true}
	for _, at := range times {
		f.lost = append(f.lost, restartBegin.Add(at))
	}
	return f
}

// What becomes of flows: they live, break, move, or are not answered; the last lost packet is one of those that live.
func TestFailoverJudged(t *testing.T) {
	broken := lostAt(5 * time.Second)
	broken.broken = "a 10.0.0.2:1, then b 10.0.0.2:1"
	silent := lostAt(7 * time.Second)
	silent.answered = false
	tcp := &failoverFlow{clientFlow: &clientFlow{stream: true}, answered: true, wait: 600 * time.Millisecond}
	load := failoverLoad{flows: []*failoverFlow{lostAt(10*time.Millisecond, 300*time.Millisecond), lostAt(200 * time.Millisecond), broken, silent, tcp}}
	o := load.judge(restartBegin)
	if d := o.datagram; d.flows != 4 || d.lost != 2 || d.datagrams != 3 || d.last != 300*time.Millisecond || d.why != broken.broken {
		t.Errorf("UDP: %+v", d)
	}
	if s := o.stream; s.flows != 1 || s.lost != 0 || s.wait != 600*time.Millisecond {
		t.Errorf("TCP: %+v", s)
	}
}

// A flow notes what its answers say: who it is with, and which datagrams were not answered before the next one.
func TestFailoverFlow(t *testing.T) {
	near, distant := net.Pipe()
	defer distant.Close()
	go func() { // what is sent is read
		b := make([]byte, 64)
		for {
			if _, err := distant.Read(b); err != nil {
				return
			}
		}
	}()
	f := &failoverFlow{clientFlow: &clientFlow{conn: near}, owner: "a", answered: true, marked: true}
	f.send()
	f.send() // the first one was lost
	f.take(1, "a")
	if f.answered || len(f.lost) != 1 {
		t.Errorf("a late answer counts: %v, %v", f.answered, f.lost)
	}
	f.take(2, "a")
	if !f.answered || f.broken != "" || f.wait == 0 {
		t.Errorf("answered %v, broken %q, wait %v", f.answered, f.broken, f.wait)
	}
	f.send()
	f.take(3, "b")
	if f.broken != "a, then b" {
		t.Errorf("broken %q", f.broken)
	}
	f.send()
	if f.next != 3 {
		t.Error("a lost flow sends")
	}
	near.Close()
	stream := &failoverFlow{clientFlow: &clientFlow{conn: near, stream: true}, answered: true}
	stream.send()
	if stream.broken == "" {
		t.Error("a connection that cannot send lives")
	}
}

// The aims: nothing is lost where flows are to survive; without flows at the balancer nothing is proven.
func TestFailoverVerdicts(t *testing.T) {
	paths := failoverPaths()
	lost := failoverOutcome{stream: failoverCounts{flows: 10, lost: 1, why: "reset"}, datagram: failoverCounts{flows: 10}}
	fine := failoverOutcome{stream: failoverCounts{flows: 10}, datagram: failoverCounts{flows: 10}}
	pathNamed := func(name string) failoverPath {
		for _, p := range paths {
			if p.name == name {
				return p
			}
		}
		t.Fatalf("no path %s", name)
		return failoverPath{}
	}
	var results []*measure.Result
	for _, c := range []struct {
		path, change string
		outcome      failoverOutcome
		first        int
		verdict      string
	}{
		{"weir-dsr", changeNone, fine, 5, verdictReached},
		{"weir-dsr", changeNone, lost, 5, verdictMissed},
		{"weir-dsr", changeNone, fine, 0, verdictVoid},
		{"weir-dsr-tables", changeAdded, lost, 5, verdictMissed},
		{"weir-nat-sync", changeReturned, lost, 5, verdictMissed},
		{"weir-cid", changeAdded, lost, 5, verdictReached}, // TCP is not steered by connection ids
		{"iptables-dnat", changeNone, lost, -1, verdictPeer},
	} {
		cell := failover{config: FailoverConfig{Flows: 20, Rate: 100, BFD: time.Second}, path: pathNamed(c.path), change: c.change, atFirst: c.first}
		r := cell.result(restartBegin)
		cell.fill(r, c.outcome, 0)
		if r.Parameters[paramVerdict] != c.verdict {
			t.Errorf("%s, %s: %v, want %s", c.path, c.change, r.Parameters, c.verdict)
		}
		results = append(results, r)
	}
	if first := figureOf(results[6], figureFailoverFirst); !math.IsNaN(first) {
		t.Errorf("flows at a balancer that is not Weir: %g", first)
	}
	text, page := shown(t, results)
	if !strings.Contains(text, "1 (10.0 %)") || !strings.Contains(text, "missed: reset") || !strings.Contains(page, "flows lost, backends: none") {
		t.Errorf("%s", text)
	}
}

func TestFailoverConfig(t *testing.T) {
	good := FailoverConfig{Flows: 100, Rate: 100, BFD: 100 * time.Millisecond}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*FailoverConfig){
		"--flows 3": func(c *FailoverConfig) { c.Flows = 3 }, "ulimit": func(c *FailoverConfig) { c.Flows = 1_000_000 }, "--rate": func(c *FailoverConfig) { c.Rate = math.NaN() },
		"--bfd": func(c *FailoverConfig) { c.BFD = 0 }, `no path "x"`: func(c *FailoverConfig) { c.Paths = []string{"x"} }, `no change "y"`: func(c *FailoverConfig) { c.Changes = []string{"y"} },
	} {
		c := good
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error about %s", err, want)
		}
	}
}
