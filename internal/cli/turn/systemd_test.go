package turn

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/client"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// systemd holds the sockets and the records of a gateway without a supervisor: a restart, a kill and a hang under 200
// relayed flows lose no allocation, and no client ever receives an error of a closed port.
func TestRootTurnSurvivesUnderSystemd(t *testing.T) {
	if !clitest.OwnProcess(t) {
		return
	}
	config, server := turnConfig(t)
	dir, err := os.MkdirTemp("", "weir")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if log, _ := os.ReadFile(filepath.Join(dir, "log")); t.Failed() {
			t.Logf("gateway:\n%s", log)
		}
		_ = os.RemoveAll(dir)
	})
	socket := filepath.Join(dir, "s")
	binary, err := filepath.Abs(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	unit := clitest.SystemdUnit(t, "turn-restart.md", fmt.Sprintf("%s turn gateway -c %s --no-supervisor --admin unix:%s", binary, config, socket), clitest.RunAsWeir+"=1", filepath.Join(dir, "log"))
	s := clitest.StartSystemd(t, unit)
	g := &turnGateway{config: config, server: server, Process: &clitest.Process{
		T: t, Name: "gateway", Admin: client.New("unix:"+socket, ""), Socket: socket, Ended: make(chan struct{}),
	}}
	first := g.becomes(v1.TurnStatus{})
	netlabtest.Eventually(t, "the service is active", func() bool { state, _ := s.Systemctl("is-active", "weir"); return state == "active" })
	fs := newTurnFlows(t, server, survivors, flowInterval)
	fs.goOn()
	before := g.stored()
	if before.PID != first.PID || before.Handover.Supervisor != "systemd" || before.Handover.Sockets < survivors || before.Handover.Refused != 0 {
		t.Fatalf("%+v after %+v", before.Handover, first.Handover)
	}
	if stored, err := s.Systemctl("show", "--property=NFileDescriptorStore", "--value", "weir"); err != nil || stored != strconv.Itoa(before.Handover.Sockets) {
		t.Errorf("systemd stores %s descriptors, the gateway counts %d: %v", stored, before.Handover.Sockets, err)
	}
	for _, command := range [][]string{
		{"restart", "weir"},
		{"kill", "--kill-who=main", "--signal=KILL", "weir"},
		{"kill", "--kill-who=main", "--signal=STOP", "weir"}, // it no longer answers the watchdog
	} {
		what := "systemctl " + strings.Join(command, " ")
		if out, err := s.Systemctl(command...); err != nil {
			t.Fatalf("%s: %v: %s", what, err, out)
		}
		after := g.becomes(before)
		survived(t, what, fs, after)
		after = g.stored()
		if after.Handover.Sockets != before.Handover.Sockets || after.Handover.Refused != 0 {
			t.Errorf("%s: %+v, want %d sockets stored", what, after.Handover, before.Handover.Sockets)
		}
		before = g.now()
	}
	if n := fs.refused(); n > 0 {
		t.Errorf("clients were refused %d times: the listener was closed", n)
	}
	upgrade := exec.Command(binary, "turn", "upgrade", "--admin", "unix:"+socket)
	upgrade.Env = append(os.Environ(), clitest.RunAsWeir+"=1")
	if out, err := upgrade.CombinedOutput(); err == nil || !strings.Contains(string(out), "systemctl restart") {
		t.Errorf("weir turn upgrade: %v: %s", err, out)
	}
	// A stop drains, then systemd closes what it stores.
	fs.release()
	if out, err := s.Systemctl("stop", "weir"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if stored, err := s.Systemctl("show", "--property=NFileDescriptorStore", "--value", "weir"); err != nil || stored != "0" {
		t.Errorf("systemd stores %s descriptors after a stop: %v", stored, err)
	}
}
