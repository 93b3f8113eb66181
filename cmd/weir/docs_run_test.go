package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// docsNotRun are the blocks of commands that cannot run in the test, by page: each with the reason that its mark gives.
var docsNotRun = map[string][]string{
	"README.md": {"it needs a network, and builds what is under test; CI runs make build"},
}

// Every block of commands runs, but for those of docsNotRun.
func TestEveryCommandBlockRunsOrSaysWhyNot(t *testing.T) {
	ran, notRun := 0, map[string][]string{}
	for _, page := range pages(t) {
		for _, block := range readBlocks(t, page) {
			reason, marked := block.mark("not run")
			switch {
			case marked:
				notRun[block.page] = append(notRun[block.page], reason)
			case block.language == "" || block.language == "sh":
				ran++
				if len(block.steps()) == 0 {
					t.Errorf("%s: a block of commands without a command; write ```text", block.at(0))
				}
			}
		}
	}
	t.Logf("%d blocks of commands run", ran)
	for _, page := range slices.Sorted(maps.Keys(notRun)) {
		t.Logf("%s: %d do not: %s", page, len(notRun[page]), strings.Join(notRun[page], "; "))
	}
	if !maps.EqualFunc(notRun, docsNotRun, slices.Equal) {
		t.Errorf("blocks that are not run: %q; those that may: %q", notRun, docsNotRun)
	}
	if ran < 60 {
		t.Errorf("only %d blocks run", ran)
	}
}

// Every command of a page runs in one shell, in the order of the page, in network, mount and process namespaces of its own.
// Blocks with the mark "own shell" have one, which runs at the same time.
func TestRootDocsRun(t *testing.T) {
	clitest.TakesSeconds(t)
	netlabtest.Root(t)
	netlabtest.Tools(t, "unshare", "ip", "jq", "curl", "tcpdump", "hping3", "iptables", "iperf", "ethtool", "turnserver", "socat", "openssl", "wrk", "nft")
	for _, page := range pages(t) {
		var steps []docStep
		for _, block := range readBlocks(t, page) {
			if slices.Contains(block.marks, "own shell") {
				runShell(t, block.at(0), block.steps())
			} else {
				steps = append(steps, block.steps()...)
			}
		}
		runShell(t, filepath.Base(page), steps)
	}
}

func runShell(t *testing.T, name string, steps []docStep) {
	if len(steps) > 0 {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runSteps(t, steps)
		})
	}
}

// docsSetup gives the shell a machine of its own: loopback, /run with the lab's namespaces and control sockets, BPF pins.
const docsSetup = `set -e
mount -t tmpfs tmpfs /run
mount -t bpf bpf /sys/fs/bpf
ip link set lo up
sysctl -q net.ipv4.ip_forward=1
set +e
exec {never}<> <(:) # from which nothing can be read: to wait without a process
sleep() { # on a busy machine also until no program of this block is still starting: asleep, twenty times in a row, or it has a socket at last
	command sleep "$@"
	calm=0
	for i in {1..4000}; do
		calm=$((calm + 1))
		for stat in /proc/[0-9]*/stat; do
			{ read -r _ program state _ <$stat; } 2>/dev/null && [[ $program == "(weir"* && $state == [RD] ]] || continue
			[ $i -gt 500 ] && connected ${stat%/stat} || calm=0
		done
		[ $calm -ge 20 ] && break
		read -rt 0.01 -u $never
	done
}
connected() {
	for fd in $1/fd/*; do
		[ -S $fd ] && return
	done
	return 1
}
socket() { until [ -S $1 ]; do read -rt 0.05 -u $never; done; true; } # a program that was started listens
kept=
interrupted() { # by Ctrl-C, the last first
	code=0
	for pid in $kept; do
		kill -INT -- -$pid 2>/dev/null # unless it has ended
		wait $pid || { echo "process $pid: exit code $?"; code=1; }
	done
	kept=
	return $code
}
`

// script is what the shell does for a step: its output goes to the file n.all, its exit code to n.code. What a program in
// the background prints later is not in n.out.
func (s *docStep) script(results string, n int) string {
	file := filepath.Join(results, strconv.Itoa(n))
	switch s.role {
	case interrupts:
		return fmt.Sprintf("interrupted >%[1]s.all 2>&1\necho $? >%[1]s.code\n", file)
	case keepsOn:
		return fmt.Sprintf("set -m\n{ %[2]s\n} >%[1]s.all 2>&1 </dev/null &\nset +m\nkept=\"$! $kept\"\n"+
			"until [ -s %[1]s.all ] || ! kill -0 $! 2>/dev/null; do read -rt 0.05 -u $never; done\necho 0 >%[1]s.code\n", file, s.command)
	default:
		if s.code == 0 && strings.HasPrefix(s.command, "weir coap get ") { // as a reader does whose server or tunnel is not ready yet
			return fmt.Sprintf("for try in {1..80}; do\n{ %[2]s\n} >%[1]s.all 2>&1 </dev/null\ncode=$?\n[ $code = 0 ] && break\nread -rt 0.25 -u $never\ndone\necho $code >%[1]s.code\ncp %[1]s.all %[1]s.out\n", file, s.command)
		}
		return fmt.Sprintf("{ %[2]s\n} >%[1]s.all 2>&1 </dev/null\necho $? >%[1]s.code\ncp %[1]s.all %[1]s.out\n", file, s.command)
	}
}

func runSteps(t *testing.T, steps []docStep) {
	dir, results := docsDirectory(t), t.TempDir()
	var script strings.Builder
	script.WriteString(docsSetup)
	for i, step := range steps {
		script.WriteString(step.script(results, i))
	}
	// The end of the process namespace's first process ends all others.
	file := filepath.Join(results, "script")
	if err := os.WriteFile(file, []byte(script.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	shell := exec.CommandContext(ctx, "unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", file)
	shell.Dir = dir
	shell.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "WEIR_TEST_PARENT=") // its process id means nothing in there
	}), "PATH="+filepath.Join(dir, ".bin")+":"+os.Getenv("PATH"), clitest.RunAsWeir+"=1", "COLUMNS=80")
	out, err := shell.CombinedOutput()
	t.Logf("CPU time %v, without programs that ended with the shell", clitest.CPUTime(shell))
	kept := ""
	for i, step := range steps {
		code, readErr := os.ReadFile(filepath.Join(results, strconv.Itoa(i)+".code"))
		got, _ := os.ReadFile(filepath.Join(results, strconv.Itoa(i)+".all"))
		if readErr != nil {
			t.Fatalf("%s: %s: did not end: %v, %v, %s\nprinted\n%s", step.at, step.command, err, ctx.Err(), out, got)
		}
		if finished, err := os.ReadFile(filepath.Join(results, strconv.Itoa(i)+".out")); err == nil {
			got = finished // a program in the background may have gone on writing
		}
		switch step.role {
		case keepsOn:
			kept += step.command + "\n" + string(got)
		case interrupts:
			step.command, got, kept = "Ctrl-C", append(got, kept...), ""
		}
		if most := 20_000; step.want == nil && len(got) > most {
			got = got[len(got)-most:]
		}
		if ended := strings.TrimSpace(string(code)); ended != strconv.Itoa(step.code) && (ended != "0" || !step.orZero) {
			t.Errorf("%s: %s: exit code %s, want %d; printed\n%s", step.at, step.command, ended, step.code, got)
		} else if step.want != nil {
			if err := compareOutput(*step.want, string(got), step.figures); err != nil {
				t.Errorf("%s: %s: %v", step.at, step.command, err)
			}
		}
	}
}

// docsDirectory is where a page's commands run: with the repository's examples, and weir and what testdata/docs holds in
// .bin. That is a sudo that changes nothing, an nfqlb that prints what a real one has printed, and what pages set up.
func docsDirectory(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	bin := filepath.Join(dir, ".bin")
	self, err := os.Executable()
	for from, to := range map[string]string{"../../examples": "examples", "testdata/docs": ".bin", "../../internal/control/nfqlb/testdata": ".nfqlb"} {
		err = errors.Join(err, os.CopyFS(filepath.Join(dir, to), os.DirFS(from)))
	}
	if err = errors.Join(err, os.Symlink(self, filepath.Join(bin, "weir"))); err != nil {
		t.Fatal(err)
	}
	return dir
}
