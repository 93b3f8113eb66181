package snatlab

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/weir-lb/weir/internal/snat"
)

// A run that breaks once is made again; one that breaks twice is a failed row and takes no other with it.
func TestAFailedRunDiscardsNoOther(t *testing.T) {
	var scenarios []snat.Scenario
	for _, name := range []string{"good", "late", "broken"} {
		scenarios = append(scenarios, snat.Scenario{Name: name, Connections: 2000, Path: []snat.StageSpec{{Kind: snat.AzureLB}}}.WithDefaults())
	}
	var mu sync.Mutex
	tries := map[string]int{}
	c := Config{Scenarios: scenarios, NATs: []string{Kernel, Weir}, once: func(_ context.Context, l *layout, _ func(int)) (*Measured, error) {
		mu.Lock()
		defer mu.Unlock()
		name := l.scenario.Name
		if !l.weir {
			name += " kernel"
		}
		tries[name]++
		if name == "broken" || name == "late" && tries[name] == 1 {
			return nil, errors.New("weir.sock: no such file")
		}
		return &Measured{Held: int(l.plan.Holds), Server: int(l.plan.Holds)}, nil
	}}
	r, err := c.run(t.Context())
	if err != nil || r.Runs != 5 || r.Failed != 1 || r.Differ != 0 || OK(r) {
		t.Fatalf("%v: %+v", err, r)
	}
	if late, broken := r.Cells[1].Weir, r.Cells[2].Weir; late.SNATMeasured == nil || len(late.Errors) != 1 || broken.SNATMeasured != nil || len(broken.Errors) != attempts {
		t.Errorf("late %+v, broken %+v", late, broken)
	}
	var text, page bytes.Buffer
	if err := errors.Join(Write(&text, r), WriteHTML(&page, r, "weir snat lab")); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"FAILED", "broken: attempt 2 with weir's NAT failed: weir.sock: no such file", "1 runs failed, 5 came to a count"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in:\n%s", want, text.String())
		}
	}
	if !strings.Contains(page.String(), "weir.sock") || !strings.Contains(page.String(), "1 runs failed") {
		t.Error("the page does not say it")
	}
}
