package turn

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/client"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// systemdBoot starts systemd as the first process of new namespaces, with one service, in a cgroup of its own, which
// it removes at the end. It cannot write sysctls: it would raise fs.file-max of the whole machine. Its argument is the directory of the unit files; systemd's process id goes to its file pid.
const systemdBoot = `
mount --make-rprivate / && mkdir -p $1/cgroup && mount -t cgroup2 none $1/cgroup || exit 1
group=$1/cgroup/weir-test-$$
mkdir $group && echo 0 > $group/cgroup.procs || exit 1
setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child --cgroup --uts --ipc sh -ec '
	mount -t proc proc /proc
	mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys
	umount -R -l /sys/fs/cgroup
	mount -t cgroup2 none /sys/fs/cgroup
	mount -t tmpfs tmpfs /run
	mount -t tmpfs tmpfs /etc/systemd/system
	cp $0/*.service $0/*.target /etc/systemd/system
	exec env -i container=weir PATH=$PATH /lib/systemd/systemd --system --unit=weir.target --log-target=console --show-status=0 --dump-core=0
' $1 &
echo $! > $1/pid
wait
echo 0 > $1/cgroup/cgroup.procs
find $group -depth -type d -exec rmdir {} + 2> $1/rmdir
`

// systemdService is a service of a systemd that was started for a test.
type systemdService struct {
	t       *testing.T
	unshare int // process id
}

// startSystemd starts a systemd with a service named weir until the test ends.
func startSystemd(t *testing.T, unit string) *systemdService {
	t.Helper()
	netlabtest.Root(t)
	netlabtest.Tools(t, "systemctl", "unshare", "nsenter", "setpriv")
	dir := t.TempDir()
	for name, text := range map[string]string{
		"weir.target":  "[Unit]\nDefaultDependencies=no\nWants=weir.service\n",
		"weir.service": unit,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("unshare", "--mount", "sh", "-c", systemdBoot, "sh", dir)
	out := new(clitest.LockedBuffer)
	cmd.Stdout, cmd.Stderr = out, out
	if err := clitest.StartChild(cmd); err != nil {
		t.Fatal(err)
	}
	s := &systemdService{t: t}
	t.Cleanup(func() {
		if s.unshare != 0 {
			if systemd := s.init(); systemd != 0 {
				_ = syscall.Kill(systemd, syscall.SIGKILL) // all of its namespace ends with it
			}
		}
		_ = cmd.Wait()
		if left, _ := os.ReadFile(filepath.Join(dir, "rmdir")); len(left) > 0 {
			t.Errorf("the cgroup stays: %s", left)
		}
		if t.Failed() {
			t.Logf("systemd:\n%s", out)
		}
	})
	netlabtest.Eventually(t, "systemd runs", func() bool {
		text, _ := os.ReadFile(filepath.Join(dir, "pid"))
		s.unshare, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		return s.unshare != 0 && s.init() != 0
	})
	return s
}

// init is systemd's process id here, 0 before it runs.
func (s *systemdService) init() int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", s.unshare))
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return pid
}

func (s *systemdService) systemctl(args ...string) (string, error) {
	command := append([]string{"--target", strconv.Itoa(s.init()), "--mount", "--pid", "systemctl"}, args...)
	out, err := exec.CommandContext(s.t.Context(), "nsenter", command...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// systemdUnit is the unit of docs/turn-restart.md with the paths of a test.
func systemdUnit(t *testing.T, start, environment, log string) string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/turn-restart.md")
	if err != nil {
		t.Fatal(err)
	}
	_, unit, found := strings.Cut(string(text), "```ini\n")
	unit, _, ended := strings.Cut(unit, "```")
	if !found || !ended {
		t.Fatal("docs/turn-restart.md has no unit")
	}
	var lines []string
	for line := range strings.Lines(unit) {
		switch {
		case strings.HasPrefix(line, "ExecStart="):
			line = "ExecStart=" + start + "\nEnvironment=" + environment + "\n"
		case strings.HasPrefix(line, "Type="):
			line += "StandardOutput=append:" + log + "\nStandardError=append:" + log + "\n"
		case strings.HasPrefix(line, "WatchdogSec="):
			line = "WatchdogSec=2\n"
		case strings.HasPrefix(line, "[Unit]"):
			line += "DefaultDependencies=no\n"
		case strings.HasPrefix(line, "User="), strings.HasPrefix(line, "StateDirectory="):
			continue
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "")
}

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
	unit := systemdUnit(t, fmt.Sprintf("%s turn gateway -c %s --no-supervisor --admin unix:%s", binary, config, socket), clitest.RunAsWeir+"=1", filepath.Join(dir, "log"))
	s := startSystemd(t, unit)
	g := &turnGateway{config: config, server: server, Process: &clitest.Process{
		T: t, Name: "gateway", Admin: client.New("unix:"+socket, ""), Socket: socket, Ended: make(chan struct{}),
	}}
	first := g.becomes(v1.TurnStatus{})
	netlabtest.Eventually(t, "the service is active", func() bool { state, _ := s.systemctl("is-active", "weir"); return state == "active" })
	fs := newTurnFlows(t, server, survivors, flowInterval)
	fs.goOn()
	before := g.now()
	if before.PID != first.PID || before.Handover.Supervisor != "systemd" || before.Handover.Sockets < survivors || before.Handover.Refused != 0 {
		t.Fatalf("%+v after %+v", before.Handover, first.Handover)
	}
	if stored, err := s.systemctl("show", "--property=NFileDescriptorStore", "--value", "weir"); err != nil || stored != strconv.Itoa(before.Handover.Sockets) {
		t.Errorf("systemd stores %s descriptors, the gateway counts %d: %v", stored, before.Handover.Sockets, err)
	}
	for _, command := range [][]string{
		{"restart", "weir"},
		{"kill", "--kill-who=main", "--signal=KILL", "weir"},
		{"kill", "--kill-who=main", "--signal=STOP", "weir"}, // it no longer answers the watchdog
	} {
		what := "systemctl " + strings.Join(command, " ")
		if out, err := s.systemctl(command...); err != nil {
			t.Fatalf("%s: %v: %s", what, err, out)
		}
		after := g.becomes(before)
		survived(t, what, fs, after)
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
	if out, err := s.systemctl("stop", "weir"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if stored, err := s.systemctl("show", "--property=NFileDescriptorStore", "--value", "weir"); err != nil || stored != "0" {
		t.Errorf("systemd stores %s descriptors after a stop: %v", stored, err)
	}
}
