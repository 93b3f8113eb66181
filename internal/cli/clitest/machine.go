package clitest

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// bootMachine starts a systemd on a copy of this machine's files, in which no unit is installed. What is written there is in memory.
const bootMachine = `
mkdir $0/disk && mount -t tmpfs tmpfs $0/disk && mkdir $0/disk/written $0/disk/work $0/root
mount -t overlay overlay -o lowerdir=/,upperdir=$0/disk/written,workdir=$0/disk/work $0/root
cd $0/root
mount -t proc proc proc
mount --bind proc/sys proc/sys && mount -o remount,bind,ro proc/sys
mount --rbind /dev dev
mount -t sysfs sysfs sys
mount -t cgroup2 none sys/fs/cgroup
mount -t bpf -o mode=700 bpf sys/fs/bpf
for part in run tmp etc/systemd/system usr/lib/systemd/system; do mount -t tmpfs tmpfs $part; done
mkdir -p .$0 && mount --bind $0 .$0
cp $0/*.target etc/systemd/system
mkdir -p old && pivot_root . old && cd / && umount -l /old
ip link set lo up
ip link add veth0 type veth peer name veth1
ip link set veth0 up
ip link set veth1 up
` + startSystemd

// Machine is a machine with systemd for a test of packages: its own processes, network (loopback, and the ends veth0 and veth1 of one
// cable) and files, which are a copy of this machine's.
type Machine struct{ *SystemdService }

// StartMachine starts one until the test ends. It sees the directory dir, and nothing else of what this test writes.
func StartMachine(t *testing.T, dir string) *Machine {
	t.Helper()
	netlabtest.Tools(t, "pivot_root", "ip", "dpkg", "systemd-sysusers", "systemd-tmpfiles")
	units := map[string]string{}
	for _, target := range []string{"weir", "sysinit", "basic", "network-online", "multi-user", "shutdown"} {
		units[target+".target"] = "[Unit]\nDefaultDependencies=no\n"
	}
	m := &Machine{bootSystemd(t, dir, bootMachine, "--net", units)}
	netlabtest.Eventually(t, "systemd listens", func() bool { // each systemctl costs more than this look
		_, err := os.Stat(fmt.Sprintf("/proc/%d/root/run/systemd/private", m.init()))
		return err == nil
	})
	netlabtest.Eventually(t, "systemd answers", func() bool {
		out, err := m.Run("systemctl", "is-active", "weir.target")
		return err == nil && out == "active"
	})
	return m
}

// Command is a command on the machine.
func (m *Machine) Command(args ...string) *exec.Cmd {
	enter := []string{"--target", strconv.Itoa(m.init()), "--mount", "--pid", "--net", "--uts", "--ipc", "--root", "--wd"}
	return exec.CommandContext(m.t.Context(), "nsenter", append(enter, args...)...)
}

// Run runs a command on the machine.
func (m *Machine) Run(args ...string) (string, error) {
	out, err := m.Command(args...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}
