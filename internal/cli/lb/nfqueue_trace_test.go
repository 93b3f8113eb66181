package lb

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/clitest"
)

// A trace finds the queue data path by itself and shows its packets as lines, JSON and a capture; there is one at a time,
// and it is over when its reader goes.
func TestRootNFQTrace(t *testing.T) {
	lab := queueLab(t, "nfqtrace")
	k := newQueueLB(t, lab.Namespace("gateway"), fmt.Sprintf(queueSpec, 100))
	at := "--admin=unix:" + k.socket
	stop := keepTalking(t.Context(), []*talker{newTalker(t, lab.Namespace("zone0"), "udp", "10.9.9.9:80")})
	defer stop()
	capture := filepath.Join(t.TempDir(), "t.pcapng")
	out, code := clitest.Weir(t, "lb", "trace", at, "--service", "dsr", "--reason", "conntrack", "--host", "10.9.9.9", "--limit", "3", "--pcap", capture)
	if code != 0 || strings.Count(out, "\n") != 3 || strings.Count(out, " > 10.9.9.9:80, ") != 3 ||
		strings.Count(out, "bytes: forward conntrack dsr/") != 3 || strings.Count(out, " veth0 udp ") != 3 || strings.Count(out, ", mark 10") != 3 {
		t.Errorf("trace: %d\n%s", code, out)
	}
	raw, err := os.ReadFile(capture)
	if err != nil || strings.Count(string(raw), "forward conntrack dsr/") != 3 {
		t.Errorf("capture: %v", err)
	}
	if out, code := clitest.Weir(t, "explain", k.config, "--pcap", capture); code != 0 || !strings.Contains(out, "10.9.9.9:80") {
		t.Errorf("explain: %d\n%s", code, out)
	}

	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	trace, lines := clitest.Root(), new(clitest.LockedBuffer)
	trace.SetArgs([]string{"lb", "trace", at, "--json"})
	trace.SetOut(lines)
	ended := make(chan error, 1)
	go func() { ended <- trace.ExecuteContext(ctx) }()
	for deadline := time.Now().Add(60 * time.Second); !strings.Contains(lines.String(), "\n") && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond)
	}
	line, _, _ := strings.Cut(lines.String(), "\n")
	var p v1.TracedPacket
	if err := clitest.ReadStrictly([]byte(line), &p); err != nil || p.Service != "dsr" || p.Mark == 0 || p.Queue == nil || p.Interface != "veth0" {
		t.Errorf("JSON: %v %s", err, line)
	}
	if out, code := clitest.Weir(t, "lb", "trace", at); code != cli.ExitFailure || !strings.Contains(out, "one trace at a time") {
		t.Errorf("a second trace: %d %s", code, out)
	}
	interrupt()
	if err := <-ended; err != nil {
		t.Errorf("interrupted: %v", err)
	}
	for deadline := time.Now().Add(60 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		out, code = clitest.Weir(t, "lb", "trace", at, "--limit", "1")
		if code == 0 || !strings.Contains(out, "one trace at a time") || time.Now().After(deadline) {
			break
		}
	}
	if code != 0 {
		t.Errorf("after the reader went: %d %s", code, out)
	}
	if out, code := clitest.Weir(t, "lb", "trace", at, "--service", "nobody"); code != cli.ExitFailure || !strings.Contains(out, `no service "nobody"`) {
		t.Errorf("a service that there is not: %d %s", code, out)
	}

	last, final := clitest.Root(), new(clitest.LockedBuffer)
	last.SetArgs([]string{"lb", "trace", at})
	last.SetOut(final)
	go func() { ended <- last.ExecuteContext(t.Context()) }()
	for deadline := time.Now().Add(60 * time.Second); !strings.Contains(final.String(), "\n") && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond)
	}
	k.end(syscall.SIGTERM) // a trace keeps no one from ending
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "ended the answer") {
		t.Errorf("the trace of a weir that ended: %v", err)
	}
	k.start() // those who talk go on
}

// No balancer runs and the kernel has no pinned tables: the error names both.
func TestTraceOfNothing(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	if out, code := clitest.Weir(t, "lb", "trace", "--admin", "unix:"+none); code != cli.ExitFailure || !strings.Contains(out, "no program answers there") {
		t.Errorf("%d %s", code, out)
	}
	if out, code := clitest.Weir(t, "lb", "trace", "--pin-path", none); code != cli.ExitFailure || !strings.Contains(out, "no data path is kept at") {
		t.Errorf("%d %s", code, out)
	}
}

// What the command requests is what the serving side understands.
func TestTraceQuery(t *testing.T) {
	for _, flags := range []traceFlags{
		{},
		{service: "coaps", reasons: []string{"maglev", "no_backend"}, source: "192.0.2.0/24"},
		{host: "2001:db8::7"},
	} {
		want, err := flags.filter()
		if err != nil {
			t.Fatal(err)
		}
		query := traceQuery(want)
		got, err := traceFilterOf(query.Values())
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%+v: %+v, %v", want, got, err)
		}
	}
	if _, err := traceFilterOf(map[string][]string{"reason": {"bad"}}); err == nil {
		t.Error("an unknown reason is taken")
	}
}
