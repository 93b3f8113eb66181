package turn

import (
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

const (
	survivors    = 200
	flowInterval = 20 * time.Millisecond // as a voice call
)

// turnGateway is a gateway process with where it serves.
type turnGateway struct {
	*clitest.Process
	config, server string
}

// turnConfig writes a configuration whose peers are on loopback and returns its file and the listener's address.
func turnConfig(t *testing.T) (path, server string) {
	t.Helper()
	at := netlabtest.UDPAddress(t)
	// An address of this process and ports that the kernel gives to no program: while a gateway is down, they stay free.
	pid := os.Getpid()
	relay := netip.AddrFrom4([4]byte{127, 64 | byte(pid>>16), byte(pid >> 8), byte(pid)})
	path = filepath.Join(t.TempDir(), "gateway.yaml")
	text := fmt.Sprintf(`realm: %s
auth: {mode: static, users: [{name: %s, password: %s}]}
listeners:
  - {name: udp, protocol: udp, address: %v, port: %d, relay: [%v], relay_ports: 61000-65535, routes: [loopback]}
clusters:
  - {name: loopback, endpoints: ["127.0.0.1/32"]}
`, flowRealm, flowUser, flowPassword, at.Addr(), at.Port(), relay)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, at.String()
}

// startGateway runs binary as a gateway.
func startGateway(t *testing.T, binary, config, server string, args ...string) *turnGateway {
	t.Helper()
	g := &turnGateway{config: config, server: server}
	g.Process = clitest.StartBinary(t, binary, "gateway", append([]string{"turn", "gateway", "-c", config}, args...)...)
	t.Cleanup(func() { // the harness's interrupt is the second signal then, which ends a drain
		select {
		case <-g.Ended:
		default:
			g.Cmd.Process.Signal(syscall.SIGTERM)
		}
	})
	return g
}

func (g *turnGateway) now() (s v1.TurnStatus) {
	g.T.Helper()
	var text json.RawMessage
	g.Status(&text)
	if err := clitest.ReadStrictly(text, &s); err != nil {
		g.T.Fatal(err)
	}
	return s
}

// becomes waits until another process than that of before serves with as many allocations.
func (g *turnGateway) becomes(before v1.TurnStatus) v1.TurnStatus {
	g.T.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		var s v1.TurnStatus
		if err := g.Admin.Get(g.T.Context(), "/status", nil, &s); err == nil && s.PID != before.PID {
			return s
		}
		select {
		case <-g.Ended:
			g.T.Fatalf("the gateway ended: %v", g.Err)
		default:
		}
	}
	g.T.Fatal("no other process serves")
	return v1.TurnStatus{}
}

// survived checks that all allocations are there and go on, and says what the event cost.
func survived(t *testing.T, what string, fs *turnFlows, s v1.TurnStatus) gap {
	t.Helper()
	fs.goOn()
	fs.refresh()
	if s.Totals.Allocations != survivors || s.Totals.Channels != survivors {
		t.Errorf("%s: %d allocations and %d channels, want %d", what, s.Totals.Allocations, s.Totals.Channels, survivors)
	}
	g := fs.gap()
	t.Logf("%s under %d flows: %d allocations lost; %v", what, survivors, survivors-s.Totals.Allocations, g)
	return g
}

// The serving process is killed under 200 relayed flows, three times: all go on by themselves, and the sockets were open all the
// time, so that no client ever received an error of a closed port.
func TestTurnSurvivesKill(t *testing.T) {
	if !clitest.OwnProcess(t) {
		return
	}
	config, server := turnConfig(t)
	g := startGateway(t, os.Args[0], config, server)
	fs := newTurnFlows(t, server, survivors, flowInterval)
	fs.goOn()
	if lost := fs.gap(); lost.lost > 0 {
		t.Logf("before any kill: %v", lost)
	}
	for round := range 3 {
		before := g.now()
		if before.Handover.Journal.Records != survivors || before.Handover.PID != g.Cmd.Process.Pid {
			t.Fatalf("before the kill: %+v", before.Handover)
		}
		if err := syscall.Kill(before.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		after := g.becomes(before)
		survived(t, fmt.Sprint("kill -9 of the serving process, round ", round+1), fs, after)
		if after.Handover.Starts != before.Handover.Starts+1 {
			t.Errorf("%d starts, want %d", after.Handover.Starts, before.Handover.Starts+1)
		}
	}
	if n := fs.refused(); n > 0 {
		t.Errorf("clients were refused %d times: the listener was closed", n)
	}
}

// All processes are killed; a new start with the same state directory takes the allocations up at their very addresses.
func TestTurnSurvivesKillOfAll(t *testing.T) {
	config, server := turnConfig(t)
	state := filepath.Join(t.TempDir(), "state")
	g := startGateway(t, os.Args[0], config, server, "--state", state)
	fs := newTurnFlows(t, server, survivors, flowInterval)
	fs.goOn()
	before := g.now()
	// A supervisor that lives would start another child; one that is gone does not.
	if err := g.Cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for syscall.Kill(before.Handover.PID, 0) == nil { // the child has its output still, so that Wait goes on
		time.Sleep(time.Millisecond)
	}
	if err := syscall.Kill(before.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-g.Ended
	next := startGateway(t, os.Args[0], config, server, "--state", state)
	survived(t, "kill -9 of every process and a new start", fs, next.now())
}

// Ended at once by a second signal and started again with its state directory, the gateway has all it had.
func TestTurnSurvivesRestart(t *testing.T) {
	if !clitest.OwnProcess(t) {
		return
	}
	for _, flag := range []string{"--no-supervisor=false", "--no-supervisor"} {
		t.Run(flag, func(t *testing.T) {
			config, server := turnConfig(t)
			state := filepath.Join(t.TempDir(), "state")
			g := startGateway(t, os.Args[0], config, server, "--state", state, flag)
			fs := newTurnFlows(t, server, survivors, flowInterval)
			fs.goOn()
			g.interruptTwice()
			next := startGateway(t, os.Args[0], config, server, "--state", state, flag)
			survived(t, "clean restart with "+flag, fs, next.now())
		})
	}
}

// interruptTwice ends a gateway that drains, and checks its exit code.
func (g *turnGateway) interruptTwice() {
	g.T.Helper()
	g.Cmd.Process.Signal(syscall.SIGTERM)
	for !g.now().Draining {
		time.Sleep(5 * time.Millisecond)
	}
	g.Cmd.Process.Signal(syscall.SIGTERM)
	<-g.Ended
	if g.Err != nil {
		g.T.Errorf("ended at once: %v", g.Err)
	}
}

// By SIGUSR2 and by `weir turn upgrade`, another build takes the place of the running one under its process id: nothing is
// read in between, so nothing is lost but what does not fit into the kernel's buffers.
func TestTurnSurvivesUpgrade(t *testing.T) {
	if !clitest.OwnProcess(t) {
		return
	}
	config, server := turnConfig(t)
	dir := t.TempDir()
	binary, other := filepath.Join(dir, "weir"), filepath.Join(dir, "weir.next")
	copyFile(t, os.Args[0], binary)
	copyFile(t, netlabtest.Weir(t), other)
	g := startGateway(t, binary, config, server)
	fs := newTurnFlows(t, server, survivors, flowInterval)
	fs.goOn()
	before := g.now()
	if err := os.Rename(other, binary); err != nil {
		t.Fatal(err)
	}
	if err := g.Cmd.Process.Signal(syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	after := g.becomes(before)
	survived(t, "upgrade by SIGUSR2 to another build", fs, after)
	if after.Handover.Upgrades != 1 || after.Handover.PID != g.Cmd.Process.Pid || after.Handover.Last != "upgrade" {
		t.Errorf("after the upgrade: %+v", after.Handover)
	}
	if link, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", after.PID)); err != nil || link != binary {
		t.Errorf("the serving process runs %s, %v; want %s", link, err, binary)
	}

	command := exec.Command(binary, "turn", "upgrade", "--admin", "unix:"+g.Socket)
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("weir turn upgrade: %v\n%s", err, out)
	}
	t.Logf("weir turn upgrade: %s", out)
	survived(t, "weir turn upgrade to the same build", fs, g.becomes(after))
	if n := fs.refused(); n > 0 {
		t.Errorf("clients were refused %d times: the listener was closed", n)
	}
}

// Exported by one gateway and imported by another that has taken over its addresses, all allocations go on; imported once
// more they are refused, and so is what is no export.
func TestTurnMoves(t *testing.T) {
	if !clitest.OwnProcess(t) {
		return
	}
	config, server := turnConfig(t)
	g := startGateway(t, os.Args[0], config, server)
	fs := newTurnFlows(t, server, survivors, flowInterval)
	fs.goOn()
	file := filepath.Join(t.TempDir(), "allocations.json")
	exported := clitest.WantWeir(t, 0, "turn", "export", "--admin", "unix:"+g.Socket)
	if err := os.WriteFile(file, []byte(exported), 0o600); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(exported, flowPassword) {
		t.Error("the export has a password")
	}
	g.interruptTwice()
	next := startGateway(t, os.Args[0], config, server)
	if out := clitest.WantWeir(t, 0, "turn", "import", file, "--admin", "unix:"+next.Socket); out != fmt.Sprintf("%d allocations taken up, 0 refused\n", survivors) {
		t.Errorf("import: %s", out)
	}
	survived(t, "export, stop, start and import", fs, next.now())
	if out := clitest.WantWeir(t, cli.ExitFailure, "turn", "import", file, "--admin", "unix:"+next.Socket); !strings.Contains(out, fmt.Sprintf("0 allocations taken up, %d refused\n", survivors)) {
		t.Errorf("the second import: %s", out)
	}
	if out := clitest.WantWeir(t, cli.ExitFailure, "turn", "import", config, "--admin", "unix:"+next.Socket); !strings.Contains(out, "no export of weir turn export") {
		t.Errorf("the import of a configuration: %s", out)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}
