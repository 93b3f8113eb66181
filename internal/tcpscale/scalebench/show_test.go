package scalebench

import (
	"bytes"
	"strings"
	"testing"
)

// What nobody measured is no zero, and several roads fit a terminal of 100 columns.
func TestUnmeasuredFiguresAreNotZero(t *testing.T) {
	var results []*Result
	for _, road := range []string{RoadDirect, "tcx", "nfqueue", "iptables-dnat"} {
		r := &Result{Connections: 100, Held: 100, Via: &Via{Road: road, Backends: 4}}
		results = append(results, r)
		for _, row := range r.rows() {
			if row[0] == "kernel memory" || strings.HasPrefix(row[0], "user memory") || row[0] == "processor in the hold" {
				if row[1] != unmeasured {
					t.Errorf("%s: %s: %q", road, row[0], row[1])
				}
			}
		}
	}
	results[1].Via.Events = []Event{{Kind: "kill-backend", Target: "backend4"}, {Kind: "restart-balancer"}, {Kind: "kill-balancer"}}
	var out bytes.Buffer
	if err := WriteAll(&out, results); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		if len(line) > 101 {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
}
