package lb

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/client"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// flows are UDP clients of one address that request again and again, each from its own port.
type flows struct {
	conns    []net.Conn
	backend  []atomic.Pointer[string] // that answered last
	answered atomic.Uint64
	lost     atomic.Uint64
	moved    atomic.Uint64
	stop     context.CancelFunc
	group    sync.WaitGroup
}

func startFlows(t *testing.T, address string, n int) *flows {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	f := &flows{backend: make([]atomic.Pointer[string], n), stop: cancel}
	for i := range n {
		conn, err := net.Dial("udp4", address)
		if err != nil {
			t.Fatal(err)
		}
		f.conns = append(f.conns, conn)
		f.group.Go(func() { f.run(ctx, i) })
	}
	t.Cleanup(func() {
		f.end()
		for _, conn := range f.conns {
			conn.Close()
		}
	})
	return f
}

func (f *flows) end() {
	f.stop()
	f.group.Wait()
}

// run requests every few milliseconds; what has no answer within a time that a loaded machine needs is lost.
func (f *flows) run(ctx context.Context, i int) {
	b := make([]byte, 2048)
	for n := 0; ctx.Err() == nil; n++ {
		want := fmt.Sprintf("%d-%d", i, n)
		if _, err := f.conns[i].Write([]byte(want)); err != nil {
			f.lost.Add(1)
			continue
		}
		f.conns[i].SetReadDeadline(time.Now().Add(10 * time.Second))
		size, err := f.conns[i].Read(b)
		name, got, _ := strings.Cut(string(b[:size]), " ")
		if err != nil || got != want {
			f.lost.Add(1)
			continue
		}
		if before := f.backend[i].Swap(&name); before != nil && *before != name {
			f.moved.Add(1)
		}
		f.answered.Add(1)
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// more waits until every flow has probably been answered again.
func (f *flows) more(t *testing.T) {
	t.Helper()
	want := f.answered.Load() + uint64(3*len(f.conns))
	netlabtest.Eventually(t, "more answers", func() bool { return f.answered.Load() >= want })
}

// on returns how many flows are on a backend.
func (f *flows) on(name string) (n int) {
	for i := range f.backend {
		if at := f.backend[i].Load(); at != nil && *at == name {
			n++
		}
	}
	return n
}

// runtimeBalancer starts a balancer with a commented file for backends one and two.
func runtimeBalancer(t *testing.T, flags ...string) (p *clitest.Process, path, address string, ports map[string]int) {
	t.Helper()
	ports = map[string]int{"one": namedEcho(t, "one"), "two": namedEcho(t, "two"), "three": namedEcho(t, "three")}
	address = clitest.FreeAddresses(t, 1)[0]
	_, vip, _ := net.SplitHostPort(address)
	path = filepath.Join(t.TempDir(), "weir.yaml")
	text := fmt.Sprintf(`# the edge
hash_key: 00112233445566778899aabbccddeeff
maglev_size: 1009
services:
- name: echo # what clients use
  vips: [{address: 127.0.0.1, protocol: udp, port: %s}]
  backends:
  # rack 1
  - {name: one, address: 127.0.0.1, port: %d} # old
  # rack 2
  - {name: two, address: 127.0.0.1, port: %d}
`, vip, ports["one"], ports["two"])
	if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"lb", "run", path, "--datapath", "udp", "--log", "json"}, flags...)
	return clitest.Start(t, "lb", args...), path, address, ports
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// An operator's day at run time, with traffic: what Meridio's stateless-lb got wrong (update as delete and add, targets without traffic
// after scaling) is here that no flow moves and none is lost.
func TestLBRuntimeChanges(t *testing.T) {
	p, path, address, ports := runtimeBalancer(t)
	at := "--admin=unix:" + p.Socket
	file := read(t, path)
	run := func(want string, args ...string) {
		t.Helper()
		if out, code := clitest.Weir(t, append(args, at)...); code != 0 || !strings.Contains(out, want) {
			t.Fatalf("%q: %d %s; want %q", args, code, out, want)
		}
	}
	events := watch(t, p)
	f := startFlows(t, address, 12)
	f.more(t)

	// Adding, weighting and changing other backends moves no flow. Everything twice is once.
	three := fmt.Sprintf("port=%d", ports["three"])
	run("+ /services/echo/backends/three", "lb", "add", "backend", "echo/three", "address=127.0.0.1", three)
	run("configuration 2 ", "lb", "add", "backend", "echo/three", "address=127.0.0.1", three)
	run("~ /services/echo/backends/one/port", "lb", "set", "backend", "echo/one", "port=9", "--dry-run")
	run("would compile to: service echo", "lb", "set", "weight", "echo/one", "5", "--dry-run")
	run("in force; not in the file", "lb", "set", "weight", "echo/one", "5")
	run("unchanged", "lb", "set", "weight", "echo/one", "5")
	run("timeouts", "lb", "set", "service", "echo", "timeouts.udp=1m", "new_flow_rate=100000")
	f.more(t)
	if f.moved.Load() != 0 || f.lost.Load() != 0 {
		t.Errorf("%d flows moved, %d requests were lost", f.moved.Load(), f.lost.Load())
	}
	seen := map[string]int{}
	for range 30 {
		seen[requestUDP(t, address)]++
	}
	if seen["three"] < 5 || seen["one"] > 8 {
		t.Errorf("after scaling, new flows go to %v", seen)
	}
	// A backend at weight 0 keeps its flows. Removed, its flows go on elsewhere.
	run("", "lb", "set", "weight", "echo/one", "0")
	f.more(t)
	if f.moved.Load() != 0 || f.lost.Load() != 0 {
		t.Errorf("at weight 0 %d flows moved, %d requests were lost", f.moved.Load(), f.lost.Load())
	}
	f.end()
	stayed := f.on("two")
	run("- /services/echo/backends/one", "lb", "remove", "backend", "echo/one", "echo/absent")
	run("unchanged", "lb", "remove", "backend", "echo/one")
	g := startFlows(t, address, 12)
	g.more(t)
	if g.lost.Load() != 0 || g.on("one") != 0 || stayed == 0 {
		t.Errorf("%d lost, %d on the removed backend", g.lost.Load(), g.on("one"))
	}

	// Refused changes leave everything as it is, with the path, and a remedy.
	for _, c := range []struct{ args, want string }{
		{"set backend echo/two port=70000", "/services/echo/backends/two/port: "},
		{"set backend echo/two wieght=5", "/services/echo/backends/two/wieght: unknown key; did you mean weight?"},
		{"set backend nowhere/two weight=5", "/services/nowhere: there is no such object"},
		{"add backend echo/two address=127.0.0.9", "the object exists, and is another one; use set"},
		{"set weight echo/two 7 --if 1", "is in force (etag "},
		{"set option limits.flows=-5", "/limits/flows: "},
		{"add vip echo/udp", "PROTOCOL:ADDRESS:PORT"},
	} {
		if out, code := clitest.Weir(t, append([]string{"lb"}, append(strings.Fields(c.args), at)...)...); code != cli.ExitFailure || !strings.Contains(out, c.want) {
			t.Errorf("%s: %d %s; want %s", c.args, code, out, c.want)
		}
	}
	// A batch is made as a whole or not at all.
	batch := filepath.Join(t.TempDir(), "batch.yaml")
	write := func(text string) {
		if err := os.WriteFile(batch, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("changes:\n- {op: merge, path: /services/echo/backends/two, value: {weight: 50}}\n- {op: set, path: /services/nowhere/backends/x, value: {}}\n")
	if out, code := clitest.Weir(t, "lb", "apply", "-f", batch, at); code != cli.ExitFailure || !strings.Contains(out, "changes[1]: /services/nowhere") {
		t.Errorf("a batch that is half wrong: %d %s", code, out)
	}
	events.want(t, 6)
	if read(t, path) != file {
		t.Error("the file was written")
	}
	run("- /services/echo/backends/one", "lb", "diff")
	run("run-time changes are not in the file", "lb", "status")
	metric := func() bool {
		return strings.Contains(clitest.HTTPGet(t, p.Socket, "/metrics"), "weir_config_unsaved 1\n")
	}
	if !metric() {
		t.Error("the metric does not say that the changes are not saved")
	}
	run("in force, as "+path+" says", "lb", "revert")
	run("nothing to revert: it is what "+path+" says", "lb", "revert")
	if out, _ := clitest.Weir(t, "lb", "status", at); strings.Contains(out, "not in the file") || !strings.Contains(out, ", configuration 7, snapshot 7, ") || metric() {
		t.Errorf("after revert: %s", out)
	}
	run("drained", "lb", "drain", "echo/two")
	run(", configuration 7, snapshot 8, ", "lb", "status")
	run("is what "+path+" says", "lb", "diff")
	p.Stop()
	if log := p.Out.String(); !regexp.MustCompile(`"target":"echo/two".*"by":"uid \d+, pid \d+".*"event":"override"`).MatchString(log) {
		t.Errorf("the log does not say who drained:\n%s", log)
	}
	if log := p.Out.String(); !strings.Contains(log, `"event":"operator_action"`) || !strings.Contains(log, `"event":"configuration_changed"`) || !strings.Contains(log, fmt.Sprintf(`"by":"uid %d, pid %d"`, os.Getuid(), os.Getpid())) {
		t.Errorf("the log does not say who did what:\n%s", log)
	}
}

// watched are the events of a stream.
type watched struct {
	mu   sync.Mutex
	seen []v1.ConfigEvent
}

func watch(t *testing.T, p *clitest.Process) *watched {
	t.Helper()
	w := &watched{}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- client.New("unix:"+p.Socket, "", "lb").WatchConfig(ctx, 0, func(e *v1.ConfigEvent) bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.seen = append(w.seen, *e)
			return true
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-ended // an error: the balancer has ended before
	})
	netlabtest.Eventually(t, "the stream begins", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.seen) == 1
	})
	return w
}

// want waits for a generation, and checks that every one from 1 came once.
func (w *watched) want(t *testing.T, generation uint64) {
	t.Helper()
	netlabtest.Eventually(t, fmt.Sprintf("generation %d on the stream", generation), func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.seen[len(w.seen)-1].Generation >= generation
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, e := range w.seen {
		if e.Generation != uint64(i+1) || e.Missed != 0 || e.By == "" {
			t.Errorf("event %d is %+v", i, e)
		}
	}
}

// Writers that read, change and write on the condition that no other did lose no change; written back, the file keeps its comments and is
// not read again; a change of the file by hand meets run-time changes.
func TestLBRuntimeWritersAndFile(t *testing.T) {
	p, path, address, ports := runtimeBalancer(t, "--write")
	api := client.New("unix:"+p.Socket, "", "lb")
	events := watch(t, p)
	const writers, each = 4, 5
	var group sync.WaitGroup
	var conflicts atomic.Uint64
	for range writers {
		group.Go(func() {
			for done := 0; done < each; {
				var backend struct {
					Weight int `json:"weight"`
				}
				now, err := api.Config(t.Context(), client.ConfigPath("services", "echo", "backends", "two"), &backend)
				if err != nil {
					t.Error(err)
					return
				}
				value, _ := json.Marshal(map[string]int{"weight": backend.Weight + 1})
				_, err = api.Change(t.Context(), v1.ConfigRequest{If: now.ETag, Changes: []v1.ConfigChange{{Op: "merge", Path: now.Path, Value: value}}})
				switch {
				case err == nil:
					done++
				case client.StatusOf(err) == 412:
					conflicts.Add(1)
				default:
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	events.want(t, 1+writers*each)
	text := read(t, path)
	for _, want := range []string{"# the edge\n", "- name: echo # what clients use\n", "  # rack 1\n", "} # old\n", "  # rack 2\n", fmt.Sprintf("  - {name: two, address: 127.0.0.1, port: %d, weight: %d}\n", ports["two"], writers*each)} {
		if !strings.Contains(text, want) {
			t.Errorf("the file lacks %q:\n%s", want, text)
		}
	}
	t.Logf("%d conflicts", conflicts.Load())
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v %v", info.Mode(), err)
	}
	// The file by hand, twice: the second is the proof that the first was the newest generation, so that no own write was read again.
	if err := os.WriteFile(path, []byte(strings.Replace(text, "maglev_size: 1009", "maglev_size: 2003", 1)), 0o640); err != nil {
		t.Fatal(err)
	}
	events.want(t, 2+writers*each)
	status, err := api.LBStatus(t.Context())
	if err != nil || status.Error != "" || status.Reloads != 2+writers*each {
		t.Errorf("%+v %v", status.BalancerStatus, err)
	}
	if name := requestUDP(t, address); name != "one" && name != "two" {
		t.Errorf("%s answers", name)
	}
}

// A change of the file keeps the run-time changes of objects that it does not change.
func TestLBRuntimeChangesMeetTheFile(t *testing.T) {
	p, path, _, _ := runtimeBalancer(t)
	api := client.New("unix:"+p.Socket, "", "lb")
	events := watch(t, p)
	for _, name := range []string{"one", "two"} {
		if _, err := api.Merge(t.Context(), client.ConfigPath("services", "echo", "backends", name), map[string]int{"weight": 5}); err != nil {
			t.Fatal(err)
		}
	}
	text := strings.Replace(read(t, path), "{name: one, ", "{name: one, weight: 70, ", 1)
	if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
		t.Fatal(err)
	}
	events.want(t, 4)
	if last := events.seen[3]; len(last.Dropped) != 1 || last.Dropped[0] != "/services/echo/backends/one" || last.Action != "file" {
		t.Errorf("%+v", last)
	}
	weights := map[string]int{}
	status, err := api.LBStatus(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range status.Services[0].Backends {
		weights[b.Name] = b.Weight
	}
	if weights["one"] != 70 || weights["two"] != 5 {
		t.Errorf("weights %v", weights)
	}
	for _, want := range []string{"): written to " + path + "\n", "): nothing to save: " + path + " has it already\n"} {
		if out, code := clitest.Weir(t, "lb", "save", "--admin=unix:"+p.Socket); code != 0 || !strings.HasPrefix(out, "configuration 4 (") || !strings.HasSuffix(out, want) {
			t.Errorf("save: %d %s", code, out)
		}
	}
	if saved := read(t, path); !strings.Contains(saved, "weight: 70") || !strings.Contains(saved, "weight: 5}") || !strings.Contains(saved, "# rack 2") {
		t.Errorf("saved\n%s", saved)
	}
	if d, err := api.DiffConfig(t.Context()); err != nil || len(d.Differences) != 0 || d.Generation != 4 {
		t.Errorf("%+v %v", d, err)
	}
}

func TestLBChangeCompletion(t *testing.T) {
	p, _, _, _ := runtimeBalancer(t)
	at := "--admin=unix:" + p.Socket
	for _, c := range []struct {
		words []string
		want  string
	}{
		{[]string{"lb", "set", at, "w"}, "weight"},
		{[]string{"lb", "set", at, "backend", "echo/"}, "echo/one echo/two"},
		{[]string{"lb", "set", at, "backend", "echo/one", "we"}, "weight="},
		{[]string{"lb", "set", at, "service", "echo", "time"}, "timeouts."},
		{[]string{"lb", "remove", at, "vip", "echo/u"}, "echo/udp:127.0.0.1:"},
		{[]string{"lb", "config", at, "/services/echo/backends/t"}, "/services/echo/backends/two"},
	} {
		values, _ := clitest.Offered(t, c.words...)
		if got := strings.Join(clitest.Names(values), " "); !strings.HasPrefix(got, c.want) {
			t.Errorf("%q: %s, want %s", c.words, got, c.want)
		}
	}
}
