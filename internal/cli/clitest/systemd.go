package clitest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// systemdBoot runs a script that becomes systemd as the first process of new namespaces, in a cgroup of its own, which
// it removes at the end. systemd cannot write sysctls: it would raise fs.file-max of the whole machine. The arguments are the directory of
// the unit files, the script, which gets that as $0, and further namespaces; the process id of unshare goes to the directory's file pid.
const systemdBoot = `
mount --make-rprivate / && mkdir -p $1/cgroup && mount -t cgroup2 none $1/cgroup || exit 1
group=$1/cgroup/weir-test-$$
mkdir $group && echo 0 > $group/cgroup.procs || exit 1
setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child --cgroup --uts --ipc $3 sh -ec "$2" $1 &
echo $! > $1/pid
wait
echo 0 > $1/cgroup/cgroup.procs
find $group -depth -type d -exec rmdir {} + 2> $1/rmdir
`

const startSystemd = "exec env -i container=weir PATH=$PATH /lib/systemd/systemd --system --unit=weir.target --log-target=console --show-status=0 --dump-core=0"

// bootService starts a systemd on this machine's files.
const bootService = `
mount -t proc proc /proc
mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys
umount -R -l /sys/fs/cgroup
mount -t cgroup2 none /sys/fs/cgroup
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /etc/systemd/system
cp $0/*.service $0/*.target /etc/systemd/system
` + startSystemd

// SystemdService is a service of a systemd that was started for a test.
type SystemdService struct {
	t       *testing.T
	unshare int // process id
}

// StartSystemd starts a systemd with a service named weir until the test ends.
func StartSystemd(t *testing.T, unit string) *SystemdService {
	t.Helper()
	return bootSystemd(t, t.TempDir(), bootService, "", map[string]string{
		"weir.target":  "[Unit]\nDefaultDependencies=no\nWants=weir.service\n",
		"weir.service": unit,
	})
}

// bootSystemd starts a systemd by a script until the test ends.
func bootSystemd(t *testing.T, dir, script, namespaces string, units map[string]string) *SystemdService {
	t.Helper()
	netlabtest.Root(t)
	netlabtest.Tools(t, "systemctl", "unshare", "nsenter", "setpriv")
	for name, text := range units {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("unshare", "--mount", "sh", "-c", systemdBoot, "sh", dir, script, namespaces)
	out := new(LockedBuffer)
	cmd.Stdout, cmd.Stderr = out, out
	if err := StartChild(cmd); err != nil {
		t.Fatal(err)
	}
	s := &SystemdService{t: t}
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
func (s *SystemdService) init() int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", s.unshare))
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return pid
}

// Systemctl runs systemctl with that systemd.
func (s *SystemdService) Systemctl(args ...string) (string, error) {
	command := append([]string{"--target", strconv.Itoa(s.init()), "--mount", "--pid", "systemctl"}, args...)
	out, err := exec.CommandContext(s.t.Context(), "nsenter", command...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// SystemdUnit is the unit of a page of docs with the paths of a test: what starts, its environment, its log.
func SystemdUnit(t *testing.T, page, start, environment, log string) string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/" + page)
	if err != nil {
		t.Fatal(err)
	}
	_, unit, found := strings.Cut(string(text), "```ini\n")
	unit, _, ended := strings.Cut(unit, "```")
	if !found || !ended {
		t.Fatalf("docs/%s has no unit", page)
	}
	var lines []string
	for line := range strings.Lines(unit) {
		switch {
		case strings.HasPrefix(line, "ExecStart="):
			line = "ExecStart=" + start + "\nEnvironment=" + environment + "\n"
		case strings.HasPrefix(line, "Type="):
			line += "StandardOutput=append:" + log + "\nStandardError=append:" + log + "\n"
		case strings.HasPrefix(line, "WatchdogSec="):
			line = "WatchdogSec=5\n" // the processor may be busy with other tests for longer than the second or two that would do
		case strings.HasPrefix(line, "[Unit]"):
			line += "DefaultDependencies=no\n"
		case strings.HasPrefix(line, "User="), strings.HasPrefix(line, "StateDirectory="):
			continue
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "")
}
