package bench

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/testbed/measure"
)

// The same seed draws the same script, another one another. No node has two events at a time, one has none, and everything ends in time.
func TestChaosScript(t *testing.T) {
	const nodes, duration, every = 3, 10 * time.Minute, time.Second
	text := func(seed uint64) (lines []string) {
		for _, s := range chaosScript(seed, nodes, duration, every, 0, chaosEvents()) {
			lines = append(lines, s.at.String()+" "+s.String())
		}
		return lines
	}
	if !slices.Equal(text(1), text(1)) || slices.Equal(text(1), text(2)) {
		t.Error("a script is not its seed's")
	}
	for seed := range uint64(20) {
		seen, open := map[string]int{}, map[int]string{}
		for _, s := range chaosScript(seed, nodes, duration, every, 0, chaosEvents()) {
			seen[s.String()[:min(len(s.String()), 6)]]++
			switch {
			case s.at > duration-chaosRest:
				t.Fatalf("seed %d: %v at %v", seed, s, s.at)
			case s.event.node != (s.node >= 0):
				t.Fatalf("seed %d: %v", seed, s)
			case s.ends && open[s.node] != s.event.name:
				t.Fatalf("seed %d: %v, but the node has %q", seed, s, open[s.node])
			case s.ends:
				delete(open, s.node)
			case s.node >= 0 && open[s.node] != "":
				t.Fatalf("seed %d: %v, and the node has %q", seed, s, open[s.node])
			case s.event.end != nil:
				open[s.node] = s.event.name
			}
			if len(open) == nodes {
				t.Fatalf("seed %d: every node has an event: %v", seed, open)
			}
		}
		if len(open) > 0 || len(seen) < len(chaosEvents()) {
			t.Fatalf("seed %d: %v are not over, of %d kinds", seed, open, len(seen))
		}
	}
}

// With replicated sessions no node has an event until 20 s after that of another one.
func TestChaosScriptLeavesTimeForCopies(t *testing.T) {
	for seed := range uint64(20) {
		over, open, crashes := -chaosAlone, false, 0
		for _, s := range chaosScript(seed, 3, time.Hour, time.Second, chaosAlone, chaosEvents()) {
			switch {
			case s.ends:
				over, open = s.at, false
			case s.node >= 0 && (open || s.at < over+chaosAlone):
				t.Fatalf("seed %d: %v at %v, the event before ended at %v", seed, s, s.at, over)
			case s.node >= 0:
				over, open = s.at, s.event.end != nil
			}
			if s.event.name == "crash" {
				crashes++
			}
		}
		if open || crashes == 0 {
			t.Errorf("seed %d: %d crashes", seed, crashes)
		}
	}
}

// auditRecord is a record with a connection id.
func auditRecord(cid string, sequence uint64, body string) []byte {
	b := []byte{recordWithCID, 254, 253}
	b = binary.BigEndian.AppendUint64(b, 1<<48|sequence)
	b = append(b, cid...)
	return append(binary.BigEndian.AppendUint16(b, uint16(len(body))), body...)
}

// A nonce is used twice where two different records of a session have the same number, in one direction.
func TestNonceAudit(t *testing.T) {
	const toServer, toClient = "server", "client12"
	for name, c := range map[string]struct {
		feed                             func(a *nonces)
		records, again, reused, mistaken uint64
	}{
		"in order": {func(a *nonces) {
			for i := range uint64(600) {
				a.datagram(auditRecord(toServer, i, "a"), true)
			}
		}, 600, 0, 0, 0},
		"seen twice": {func(a *nonces) {
			for range 2 {
				a.datagram(auditRecord(toServer, 7, "a"), true)
			}
		}, 1, 1, 0, 0},
		"another text": {func(a *nonces) {
			a.datagram(auditRecord(toServer, 7, "a"), true)
			a.datagram(auditRecord(toServer, 7, "b"), true)
		}, 1, 0, 1, 0},
		"of another session": {func(a *nonces) {
			a.datagram(auditRecord(toServer, 7, "a"), true)
			a.datagram(auditRecord("SERVER", 7, "b"), true)
		}, 2, 0, 0, 0},
		"the other direction": {func(a *nonces) {
			a.datagram(auditRecord(toServer, 7, "a"), true)
			a.datagram(auditRecord(toClient, 7, "b"), false)
		}, 2, 0, 0, 0},
		"several in one send": {func(a *nonces) {
			a.datagram(slices.Concat(auditRecord(toClient, 1, "a"), auditRecord(toClient, 2, "bb"), auditRecord(toClient, 2, "cc")), false)
		}, 2, 0, 1, 0},
		"a handshake's": {func(a *nonces) {
			a.datagram(append([]byte{22, 254, 253, 0, 0, 0, 0, 0, 0, 0, 9, 0, 1, 7}, auditRecord(toClient, 1, "a")...), false)
		}, 1, 0, 0, 0},
		"cut off": {func(a *nonces) {
			b := auditRecord(toClient, 1, "abc")
			a.datagram(b[:len(b)-1], false)
		}, 0, 0, 0, 1},
		"frames": {func(a *nonces) {
			head := func(kind byte) []byte { return append([]byte{kind, 1, 2, 4}, make([]byte, 12)...) }
			a.frames(slices.Concat(head(63), auditRecord(toServer, 1, "a"), head(59), auditRecord(toServer, 1, "b")))
			a.frames(append(head(62), auditRecord(toClient, 1, "c")...))
			a.frames([]byte{61, 0, 0, 0, 0, 0})
			a.frames([]byte{63, 0, 0, 4})
		}, 2, 0, 1, 1},
	} {
		a := newNonces()
		c.feed(a)
		if a.records != c.records || a.again != c.again || a.reused != c.reused || a.malformed != c.mistaken || (a.example != "") != (c.reused > 0) {
			t.Errorf("%s: %d records, %d again, %d reused, %d malformed", name, a.records, a.again, a.reused, a.malformed)
		}
	}
}

// FuzzNonces: no bytes from the network end the audit.
func FuzzNonces(f *testing.F) {
	f.Add(auditRecord("server", 1, "a"), true)
	f.Add([]byte{63, 1, 2, 4}, false)
	f.Fuzz(func(t *testing.T, b []byte, toServer bool) {
		a := newNonces()
		a.datagram(b, toServer)
		a.frames(b)
		if from, to, payload, ok := udpOf(b); ok && (len(payload) > len(b) || !from.IsValid() || !to.IsValid()) {
			t.Error("more than the packet holds")
		}
	})
}

// A request that two processes have executed counts, unless the first one was killed before it could answer.
func TestExecutions(t *testing.T) {
	record := func(client, serial uint32, pid uint64) []byte {
		return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, client), serial), pid)
	}
	killed := []map[uint64]bool{{10: true}, {}}
	for name, c := range map[string]struct {
		nodes                        [2][]byte
		requests, twice, interrupted uint64
	}{
		"once":                  {[2][]byte{slices.Concat(record(1, 1, 10), record(1, 2, 10)), record(2, 1, 20)}, 3, 0, 0},
		"the last one killed":   {[2][]byte{slices.Concat(record(1, 1, 10), record(1, 2, 10), record(1, 2, 11))}, 2, 1, 1},
		"not the last one":      {[2][]byte{slices.Concat(record(1, 1, 10), record(1, 2, 10), record(1, 1, 11))}, 2, 1, 0},
		"at another node":       {[2][]byte{record(1, 1, 10), record(1, 1, 20)}, 1, 1, 1},
		"the last one of both":  {[2][]byte{record(1, 1, 12), record(1, 1, 20)}, 1, 1, 0},
		"twice by one process":  {[2][]byte{slices.Concat(record(1, 1, 10), record(1, 1, 10))}, 1, 1, 1},
		"three times, one kill": {[2][]byte{record(1, 1, 10), slices.Concat(record(1, 1, 20), record(1, 1, 20))}, 1, 2, 1},
	} {
		e, err := executionsOf(c.nodes[:], killed)
		if err != nil || e.requests != c.requests || e.twice != c.twice || e.interrupted != c.interrupted || (e.example != "") != (c.twice > c.interrupted) {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
	}
	if _, err := executionsOf([][]byte{make([]byte, 17)}, killed[:1]); err == nil {
		t.Error("a record that is cut off is taken")
	}
}

// What the clients, the files and the capture have seen decides the verdict, which table, page and exit code show.
func TestChaosResult(t *testing.T) {
	run := func(events []string, stats v1.CoAPBenchStats, executed executions, reused, dropped uint64) *measure.Result {
		c := &chaos{config: ChaosConfig{Seed: 7, Nodes: 3, Clients: 2, Duration: 10 * time.Second, Every: time.Second, Events: events}, audit: newNonces(), links: newNonces()}
		c.audit.records, c.links.reused = 5000, reused
		if reused > 0 {
			c.links.example = "server"
		}
		c.steps, c.names = restartEventsAt(), []string{"kill, node 1", "nat"}
		c.refused = []string{"step 2, nat: no"}
		return c.result(restartBegin, restartSamples(nil), &v1.CoAPBench{Stats: stats}, executed, dropped)
	}
	fine := v1.CoAPBenchStats{Sent: 1000, Requests: 1000}
	lost := v1.CoAPBenchStats{Sent: 1000, Requests: 999, Lost: 1, Rehandshakes: 2}
	all := executions{requests: 1000}
	for name, c := range map[string]struct {
		result  *measure.Result
		verdict string
		why     string
	}{
		"fine":               {run(nil, fine, all, 0, 0), verdictReached, ""},
		"lost":               {run(nil, lost, all, 0, 0), verdictMissed, "1 lost, 2 new handshakes"},
		"lost with a crash":  {run([]string{"crash"}, lost, all, 0, 0), verdictReached, ""},
		"wrong":              {run(nil, v1.CoAPBenchStats{Sent: 1000, Requests: 1000, Wrong: 3}, all, 0, 0), verdictMissed, "3 wrong answers"},
		"twice":              {run(nil, fine, executions{requests: 1000, twice: 3, interrupted: 1, example: "request 1"}, 0, 0), verdictMissed, "2 executed twice (request 1)"},
		"interrupted":        {run(nil, fine, executions{requests: 1000, twice: 1, interrupted: 1}, 0, 0), verdictReached, ""},
		"not executed":       {run(nil, fine, executions{requests: 998}, 0, 0), verdictMissed, "2 answered without an execution"},
		"a nonce":            {run(nil, fine, all, 1, 0), verdictMissed, "1 nonces used twice (connection id 736572766572)"},
		"gaps":               {run(nil, fine, all, 0, 9), verdictVoid, "9 packets"},
		"nothing was tested": {run(nil, v1.CoAPBenchStats{}, executions{}, 0, 0), verdictVoid, "too few"},
	} {
		if got, why := c.result.Parameters[paramVerdict], c.result.Parameters[paramMissed]; got != c.verdict || !strings.Contains(why, c.why) || why == "" && c.why != "" {
			t.Errorf("%s: %s (%s)", name, got, why)
		}
		if err := Check([]*measure.Result{c.result}); (err == nil) != (c.verdict == verdictReached) {
			t.Errorf("%s: %v", name, err)
		}
	}
	replicated := &chaos{config: ChaosConfig{Etcd: "etcd"}, audit: newNonces(), links: newNonces()}
	if verdict, why := replicated.judge(run([]string{"crash"}, lost, all, 0, 0), ""); verdict != verdictMissed || why != "1 lost, 2 new handshakes" {
		t.Errorf("lost in a crash, with copies: %s (%s)", verdict, why)
	}
	table, page := shown(t, []*measure.Result{run(nil, fine, all, 0, 0)})
	for _, want := range []string{"kill, node 1", "step 2, nat: no", "--seed 7"} {
		if !strings.Contains(table, want) || !strings.Contains(page, want) {
			t.Errorf("%q is missing in\n%s", want, table)
		}
	}
	if !strings.Contains(page, "chaos: longest wait, seed 7") {
		t.Error("no picture")
	}
}

func TestChaosConfig(t *testing.T) {
	good := ChaosConfig{Duration: time.Minute, Nodes: 3, Clients: 1, Every: time.Second}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*ChaosConfig){
		"--duration": func(c *ChaosConfig) { c.Duration = 0 }, "--nodes": func(c *ChaosConfig) { c.Nodes = 1 }, "--clients": func(c *ChaosConfig) { c.Clients = 0 },
		"--interval": func(c *ChaosConfig) { c.Interval = -1 }, "--every": func(c *ChaosConfig) { c.Every = 0 }, `no event "flood"`: func(c *ChaosConfig) { c.Events = []string{"flood"} },
	} {
		c := good
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error about %s", err, want)
		}
	}
	if names := namesOf(good.events()); slices.Contains(names, "crash") || slices.Contains(names, "clock") || !slices.Contains(names, "kill") {
		t.Errorf("%v: crash happens unasked, or clock without time namespaces, or kill never", names)
	}
}
