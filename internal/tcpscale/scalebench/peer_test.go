package scalebench

import (
	"strings"
	"testing"
	"time"
)

func TestPeersThatAreNotInstalledAreNamedWithTheRemedy(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	c := PeerConfig{With: PeerNames(), Connections: 1, Hold: time.Second, Rounds: 1}
	err := c.Validate()
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"fortio is not in the PATH (install: go install fortio.org/fortio@v", "apt-get install tsung", "apt-get install wrk"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %q", err, want)
		}
	}
}

func TestPeerConfigRefusesWhatCannotBeMeant(t *testing.T) {
	for want, c := range map[string]PeerConfig{
		`no program "tcpkali": write fortio, tsung, wrk`: {With: []string{"tcpkali"}, Connections: 1, Hold: time.Second, Rounds: 1},
		"0 connections":      {With: []string{"wrk"}, Hold: time.Second, Rounds: 1},
		"hold of 10ms":       {With: []string{"wrk"}, Connections: 1, Hold: 10 * time.Millisecond, Rounds: 1},
		"0 rounds":           {With: []string{"wrk"}, Connections: 1, Hold: time.Second},
		"wrk is named twice": {With: []string{"wrk", "wrk"}, Connections: 1, Hold: time.Second, Rounds: 1},
	} {
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// The table's figures are means of the rounds, and ratios are to Weir's.
func TestPeerTable(t *testing.T) {
	r := PeerResult{Connections: 1000, Runs: []PeerRun{
		{Program: weirName, Server: "weir tcp server", Round: 1, Processes: 1, Held: 1000, Accepted: 1000, EstablishSeconds: 1, ServerBytes: 40, ClientCPU: 2},
		{Program: "wrk", Server: "weir tcp server (plain)", Round: 1, Processes: 1, Held: 1000, Accepted: 1000, EstablishSeconds: 4, ServerBytes: 40, ClientCPU: 1},
		{Program: "wrk", Server: "weir tcp server (plain)", Round: 2, Processes: 1, Held: 990, Accepted: 1000, EstablishSeconds: 0, Lost: 10, ServerBytes: 40, ClientCPU: 1},
		{Program: weirName, Server: "weir tcp server", Round: 2, Processes: 1, Held: 1000, Accepted: 1000, EstablishSeconds: 3, ServerBytes: 40, ClientCPU: 2},
	}}
	var out strings.Builder
	r.judge()
	if err := r.Write(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"figure", "2.00 (1.00–3.00)", "995 (990–1000)", "0.5", "weir held 1000 connections in every round", "wrk one byte, then nothing"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("lacks %q:\n%s", want, &out)
		}
	}
	r.Runs[3].Lost = 1
	if r.judge(); r.OK || !strings.Contains(r.Verdict, "round 2: 1000 of 1000 connections held, 1000 accepted, 1 lost") {
		t.Errorf("%v %s", r.OK, r.Verdict)
	}
}
