package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// lasting is a command that goes on until it gets a signal to end.
type lasting struct {
	args  string // AT1 and AT2 are free addresses, DIR a directory with configurations
	under string // what shows on its standard error, a terminal, or output, that it is in the middle of it
	tools []string
}

// lastingCommands are all that go on for long, each in the middle of what takes longest to take down.
func lastingCommands() []lasting {
	return []lasting{
		{args: "lb run -c DIR/weir.yaml", under: "configuration applied"},
		{args: "nat AT1 AT2 --quiet", under: "UDP AT1 to"},
		{args: "coap server --dtls-only --dtls AT1 --workers 1", under: "uri=coaps://"},
		{args: "turn gateway turn://u:p@AT1 --workers 1", under: "msg=TURN"},
		{args: "tcp server --listen AT1 --workers 2", under: "listening on"},
		{args: "tcp stats --listen AT1", under: "msg=statistics"},
		{args: "tcp client --to AT1 --connections 10 --plateau 1h", under: "refused"},
		{args: "tcp bench --connections 2000 --hold 1h", under: `2000 `},
		{args: "tcp bench --via tcx --connections 500 --hold 1h", under: `500 `},
		{args: "tcp bench --connections 200 --with wrk --hold 1h", under: "round 1 of", tools: []string{"wrk"}},
		{args: "demo --clients 5", under: "."},
		{args: "snat lab --only AKS", under: `NAT: [1-9]`, tools: []string{"nft"}},
		{args: "bench nat", under: "round"},
		{args: "bench coap --clients 50", under: "plain: 50 clients"},
		{args: "bench coap --datapath ebpf --clients 50", under: "moved-nat: 50 clients"},
		{args: "bench ebpf --rounds 1000", under: "."},
		{args: "bench ebpf --live --hook xdp --families ipv4 --only l2dsr --rounds 20 --duration 100ms", under: "[1-9][0-9]?%"},
		{args: "bench run dsr --only routing,iptables-dnat,weir-nat-tcx --loads iperf2 --families ipv4 --duration 100ms --rounds 100", under: `round 1 of 100: iptables-dnat`, tools: []string{"iperf"}},
		{args: "bench run nfqueue --only queue,fast --loads flood --offloads off --duration 200ms --rounds 100", under: `round 1 of 100: queue,`, tools: []string{"iptables", "ip6tables", "ethtool"}},
		{args: "bench run floods --quick --duration 1s --only udp-flows", under: "[1-9]0?%", tools: []string{"iptables"}},
		{args: "bench run soak", under: "MB: node1 [0-9]"},
		{args: "bench run restart --clients 20", under: "none: 1 of 10"},
		{args: "turn bench --clients 2 --duration 600s --size 200 --bandwidth 1M --generator builtin", under: `direct: [1-9]\d* of 600`},
		{args: "turn bench --clients 2 --duration 1s --road direct-channel --sweep", under: `weir at \d+ packets/s`},
	}
}

// SIGTERM ends every command within 3 s, in the middle of whatever it does, and nothing is left: no namespace, no directory, no
// process, no pinned program. A busy machine may give the process no processor for a while: as much as this test lacks it, several times.
func TestRootTerminationEndsEveryCommand(t *testing.T) {
	netlabtest.Root(t)
	if testing.Short() {
		t.Skip("takes minutes")
	}
	t.Parallel() // networks of its own; it waits most of the time
	all := lastingCommands()
	const atOnce = 2
	for first := range atOnce {
		t.Run(fmt.Sprint("from ", first), func(t *testing.T) {
			t.Parallel()
			for i := first; i < len(all); i += atOnce {
				t.Run(strings.ReplaceAll(all[i].args, "/", "_"), func(t *testing.T) { terminate(t, all[i]) })
			}
		})
	}
}

// terminate runs a command, ends it in the middle and sees that it ended in time and left nothing.
func terminate(t *testing.T, c lasting) {
	t.Helper()
	const grace = time.Second
	netlabtest.Tools(t, c.tools...)
	temp, err := os.MkdirTemp("", "we") // short: sockets lie within
	clitest.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(temp) })
	free := clitest.FreeAddresses(t, 2)
	clitest.Must(t, os.WriteFile(filepath.Join(temp, "weir.yaml"), []byte(clitest.LBConfig(free[0], free[1])), 0o600))
	clitest.Must(t, os.Mkdir(filepath.Join(temp, "tmp"), 0o700))
	fill := strings.NewReplacer("DIR", temp, "AT1", free[0], "AT2", free[1])
	var args []string
	for _, word := range strings.Fields(c.args) {
		args = append(args, fill.Replace(word))
	}
	cmd, output := exec.Command(os.Args[0], args...), new(clitest.LockedBuffer)
	master, terminal := clitest.PTY(t) // on which progress shows at once
	cmd.Stdout, cmd.Stderr = output, terminal
	cmd.Env = append(os.Environ(), "TMPDIR="+filepath.Join(temp, "tmp"), "XDG_RUNTIME_DIR="+temp)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	clitest.Must(t, clitest.StartChild(cmd))
	terminal.Close()
	go func() { _, _ = io.Copy(output, master) }() // until the last process with the terminal ends
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
	under := regexp.MustCompile(fill.Replace(c.under))
	for end := time.Now().Add(2 * time.Minute); !under.MatchString(output.String()); {
		select {
		case <-ended:
			t.Fatalf("it ended by itself, %s\n%s", cmd.ProcessState, output)
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(end) {
			t.Fatalf("it never says %q\n%s", under, output)
		}
	}
	clitest.Must(t, cmd.Process.Signal(syscall.SIGTERM))
	took, late := timed(ended)
	t.Logf("%v, this test was late by %v; CPU time %v; orderly: %t", took.Round(10*time.Millisecond), late.Round(time.Millisecond), clitest.CPUTime(cmd), !strings.Contains(output.String(), "no orderly end"))
	if took > cli.EndWithin+grace+5*late {
		t.Errorf("it took %v\n%s", took, output)
	}
	nothingLeft(t, cmd.Process.Pid, filepath.Join(temp, "tmp"))
}

// timed waits for an end. late is how much later than it should a short sleep returned, in all.
func timed(ended <-chan struct{}) (took, late time.Duration) {
	const nap = 5 * time.Millisecond
	for began := time.Now(); ; {
		before := time.Now()
		select {
		case <-ended:
			return time.Since(began), late
		case <-time.After(nap):
			late += max(0, time.Since(before)-nap)
		}
	}
}

// nothingLeft sees that a process that has ended has left nothing that it made.
func nothingLeft(t *testing.T, pid int, temp string) {
	t.Helper()
	for _, pattern := range []string{
		fmt.Sprintf("/run/netns/weirlab-*.%d.*", pid), fmt.Sprintf("/sys/fs/bpf/weir/*-%d-*", pid), filepath.Join(temp, "weir-scratch-*"),
	} {
		if left, err := filepath.Glob(pattern); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	}
	tasks, err := filepath.Glob("/proc/[0-9]*/environ")
	clitest.Must(t, err)
	for _, task := range tasks { // whoever has the run's TMPDIR was started by it
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) { // the kernel kills children a moment after
			environ, err := os.ReadFile(task)
			if err != nil || !strings.Contains(string(environ), "TMPDIR="+temp+"\x00") {
				break
			}
			if time.Now().After(end) {
				t.Errorf("%s still runs", filepath.Dir(task))
				break
			}
		}
	}
}
