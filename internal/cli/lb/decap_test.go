package lb

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/cli/status/statustest"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// TestRootDecapStartsAndStops runs weir lb decap as a process: it attaches,
// and after a signal reports and leaves nothing.
func TestRootDecapStartsAndStops(t *testing.T) {
	lab := netlabtest.Up(t, netlab.Topology{
		Name:       "ebdecapcmd",
		Namespaces: []netlab.Namespace{{Name: "a"}, {Name: "b"}},
		Links:      []netlab.Link{netlab.Cable("a eth0", "b eth0")},
	})
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	log, socket := &clitest.LockedBuffer{}, filepath.Join(t.TempDir(), "s")
	cmd := exec.Command(self, "lb", "decap", "--interface", "eth0", "--from", "10.2.0.1", "--hook", "xdp", "--json", "--admin", "unix:"+socket)
	cmd.Stdout, cmd.Stderr = &out, log
	host := lab.Namespace("a")
	if err := host.Start(cmd); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for deadline := time.Now().Add(30 * time.Second); !strings.Contains(log.String(), "attached"); {
		if time.Now().After(deadline) {
			t.Fatalf("not attached: %s", log.String())
		}
		select {
		case err := <-ended:
			t.Fatalf("ended: %v: %s", err, log.String())
		case <-time.After(10 * time.Millisecond):
		}
	}
	if text, err := host.Exec(t.Context(), "ip", "link", "show", "eth0"); err != nil || !strings.Contains(text, "xdp") {
		t.Errorf("no program on eth0: %v %s", err, text)
	}
	statustest.Check(t, "the tunnel's end", clitest.HTTPGet(t, socket, "/metrics"))
	cmd.Process.Signal(syscall.SIGINT)
	if err := <-ended; err != nil {
		t.Fatalf("ended with %v: %s", err, log.String())
	}
	var report v1.DecapStatus
	if err := json.Unmarshal(out.Bytes(), &report); err != nil || report.Hook != "xdp" || len(report.Counters) < 9 {
		t.Errorf("report %v: %s", err, out.String())
	}
	if text, err := host.Exec(t.Context(), "ip", "link", "show", "eth0"); err != nil || strings.Contains(text, "xdp") {
		t.Errorf("left behind on eth0: %v %s", err, text)
	}
}

func TestDecapRefusesBadInput(t *testing.T) {
	for args, want := range map[string]string{
		"--from 10.0.0.1":                          "no interface",
		"--interface lo":                           "no source is allowed",
		"--interface lo --from 10.0.0.1/33":        `"10.0.0.1/33" is no address or prefix`,
		"--interface lo --from ::1 --hook generic": `no hook "generic"`,
	} {
		cmd := newLBDecapCommand()
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(strings.Fields(args))
		if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}
