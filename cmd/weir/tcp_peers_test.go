package main

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/lab/netlab/netlabtest"
	"github.com/weir-lb/weir/internal/tcpscale/scalebench"
)

// A real peer, in the same command: what the kernel counts is what was asked for.
func TestRootTCPBenchBesideAPeer(t *testing.T) {
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

func TestTCPBenchWithRefusesWhatPeersLack(t *testing.T) {
	cmd, _, notes := tcpProcess(t, (*exec.Cmd).Start, "bench", "--with", "wrk", "--rate", "5")
	cmd.Wait()
	if cmd.ProcessState.ExitCode() != exitUsage || !strings.Contains(notes.String(), "--rate with --with") {
		t.Errorf("exit code %d\n%s", cmd.ProcessState.ExitCode(), notes)
	}
}
