package tcp

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/tcpscale/scalebench"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// A real peer, in the same command: what the kernel counts is what was requested.
func TestRootTCPBenchWithAPeer(t *testing.T) {
	clitest.TakesSeconds(t)
	netlabtest.Root(t)
	netlabtest.Tools(t, "wrk")
	cmd, out, _ := tcpProcess(t, (*exec.Cmd).Start, "bench", "--with", "wrk", "--connections", "500", "--hold", "2s", "--heartbeat", "500ms", "--rounds", "1", "--json")
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	var r scalebench.PeerResult
	if err := json.Unmarshal([]byte(out.String()), &r); err != nil {
		t.Fatal(err)
	}
	if !r.OK || len(r.Runs) != 2 || r.Runs[0].Program != "weir" || r.Runs[1].Program != "wrk" {
		t.Fatalf("%+v", r)
	}
	for _, run := range r.Runs {
		if run.Held != 500 || run.Accepted != 500 || run.Lost != 0 || run.EstablishSeconds <= 0 || run.UserBytes <= 0 {
			t.Errorf("%+v", run)
		}
	}
	if weir, wrk := r.Runs[0], r.Runs[1]; weir.Segments < 100 || wrk.Segments > weir.Segments/2 {
		t.Errorf("%.0f and %.0f segments a second: weir beats, wrk is silent", weir.Segments, wrk.Segments)
	}
}

// fakeWrk puts a wrk into the PATH that is the real one with one connection, and runs a line of shell with more.
func fakeWrk(t *testing.T, line string) {
	netlabtest.Root(t)
	netlabtest.Tools(t, "wrk")
	wrk, err := exec.LookPath("wrk")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	script := "#!/bin/sh\ncase \"$*\" in *'-c 1 '*) exec " + wrk + " \"$@\";; esac\n" + line + "\n"
	if err := os.WriteFile(filepath.Join(dir, "wrk"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// A peer that ends by itself is a row with the reason, and the comparison goes on.
func TestRootTCPBenchWithAPeerThatFails(t *testing.T) {
	if !clitest.OwnProcess(t) {
		return
	}
	fakeWrk(t, "echo too many for me >&2; exit 3")
	report := filepath.Join(t.TempDir(), "r.html")
	cmd, out, _ := tcpProcess(t, (*exec.Cmd).Start, "bench", "--with", "wrk", "--connections", "50", "--hold", "1s", "--heartbeat", "500ms", "--json", "--report", report)
	cmd.Wait()
	r := peerResult(t, cmd, out)
	if len(r.Runs) != 4 || r.Runs[0].Held != 50 || r.Runs[3].Program != "weir" || r.Runs[3].Held != 50 {
		t.Fatalf("%+v", r.Runs)
	}
	for _, run := range r.Runs[1:3] {
		if run.Program != "wrk" || !strings.Contains(run.Failed, "exit status 3") || !strings.Contains(run.Failed, "too many for me") {
			t.Errorf("%+v", run)
		}
	}
	if page, err := os.ReadFile(report); err != nil || !strings.Contains(string(page), "too many for me") {
		t.Errorf("the report lacks the reason: %v", err)
	}
}

// An interrupt leaves what was measured.
func TestRootTCPBenchWithAPeerInterrupted(t *testing.T) {
	if !clitest.OwnProcess(t) {
		return
	}
	fakeWrk(t, "exec sleep 3600")
	report := filepath.Join(t.TempDir(), "r.html")
	cmd, out, notes := tcpProcess(t, (*exec.Cmd).Start, "bench", "--with", "wrk", "--connections", "50", "--hold", "1s", "--heartbeat", "500ms", "--json", "--report", report)
	clitest.WaitFor(t, notes, `round 1 of 2, wrk`)
	cmd.Process.Signal(os.Interrupt)
	cmd.Wait()
	r := peerResult(t, cmd, out)
	if !r.Interrupted || len(r.Runs) != 1 || r.Runs[0].Program != "weir" || r.Runs[0].Held != 50 || r.Verdict != "interrupted after 1 runs" {
		t.Errorf("%+v", r)
	}
	if _, err := os.Stat(report); err != nil {
		t.Error(err)
	}
}

// peerResult is the JSON of a comparison that did not end well.
func peerResult(t *testing.T, cmd *exec.Cmd, out *clitest.LockedBuffer) (r scalebench.PeerResult) {
	t.Helper()
	if err := json.Unmarshal([]byte(out.String()), &r); err != nil {
		t.Fatal(err)
	}
	if cmd.ProcessState.ExitCode() != cli.ExitFailure || r.OK {
		t.Errorf("exit code %d, ok %v", cmd.ProcessState.ExitCode(), r.OK)
	}
	return r
}

// What the comparison does not obey is refused, whatever flags the bench comes to have.
func TestTCPBenchWithRefusesWhatItDoesNotObey(t *testing.T) {
	refused := 0
	newTCPBenchCommand().Flags().VisitAll(func(flag *pflag.Flag) {
		cmd := newTCPBenchCommand()
		cmd.Flags().Lookup(flag.Name).Changed = true
		err := (&tcpPeersFlags{with: []string{"wrk"}}).check(cmd)
		if obeys := slices.Contains(obeyed[:], flag.Name); obeys != (err == nil) || !obeys && !strings.Contains(err.Error(), "--"+flag.Name+" with --with") {
			t.Errorf("--%s, obeyed %v: %v", flag.Name, obeys, err)
		}
		if err != nil {
			refused++
		}
	})
	if refused < 10 {
		t.Errorf("%d flags are refused", refused)
	}
	for _, name := range obeyed {
		if newTCPBenchCommand().Flags().Lookup(name) == nil {
			t.Errorf("--%s is no flag of the bench", name)
		}
	}
	for want, args := range map[string][]string{
		"--rate with --with":     {"--with", "wrk", "--rate", "5"},
		"--rounds: name testers": {"--rounds", "3"},
	} {
		cmd, _, notes := tcpProcess(t, (*exec.Cmd).Start, append([]string{"bench"}, args...)...)
		cmd.Wait()
		if cmd.ProcessState.ExitCode() != cli.ExitUsage || !strings.Contains(notes.String(), want) {
			t.Errorf("exit code %d, want %q\n%s", cmd.ProcessState.ExitCode(), want, notes)
		}
	}
}

func TestRootTCPBenchWithAsksTheDoctor(t *testing.T) {
	netlabtest.Root(t)
	netlabtest.Tools(t, "wrk")
	cmd, _, notes := tcpProcess(t, (*exec.Cmd).Start, "bench", "--with", "wrk", "--connections", "2000000000")
	cmd.Wait()
	if cmd.ProcessState.ExitCode() != cli.ExitFailure || !strings.Contains(notes.String(), "do not fit here") {
		t.Errorf("exit code %d\n%s", cmd.ProcessState.ExitCode(), notes)
	}
}
