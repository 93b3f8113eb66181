package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/testbedtest"
)

// The text and the page of each scenario, drawn from the results of a short real run (testdata/results).
func TestResultsAreShown(t *testing.T) {
	files, err := filepath.Glob("testdata/results/*.json")
	if err != nil || len(files) < 8 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		t.Run(name, func(t *testing.T) {
			form, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			results, err := ParseResults(form)
			if err != nil {
				t.Fatal(err)
			}
			text, page := shown(t, results)
			testbedtest.Golden(t, "results/"+name+".txt", text)
			testbedtest.Golden(t, "results/"+name+".html", page)
		})
	}
}

// A page says which command made each result and how loaded the machine was, and draws the whole distribution.
func TestReportSaysHowItWasMade(t *testing.T) {
	latency := measure.NewLatency()
	latency.Record(7 * time.Millisecond)
	made := func(path, command string) *measure.Result {
		return &measure.Result{Scenario: "made-up", Path: path, Command: command, LoadBefore: "1 2 3", LoadAfter: "4 5 6", Latency: latency}
	}
	text, err := json.Marshal([]*measure.Result{made("a", "weir bench x --json"), made("b", "weir bench x --json"), made("c", "weir bench y")})
	if err != nil {
		t.Fatal(err)
	}
	results, err := ParseResults(text)
	if err != nil {
		t.Fatal(err)
	}
	var page strings.Builder
	if err := WriteReport(&page, results); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"weir bench x --json\nload average: 1 2 3 before, 4 5 6 after", "weir bench y\nload average", "made-up: latency, percentiles of the run"} {
		if strings.Count(page.String(), want) == 0 {
			t.Errorf("the page lacks %q", want)
		}
	}
	if n := strings.Count(page.String(), "weir bench x"); n != 1 {
		t.Errorf("one command is there %d times", n)
	}
}

// shown is what results look like as text and as a page.
func shown(t *testing.T, results []*measure.Result) (text, page string) {
	t.Helper()
	var table, report bytes.Buffer
	if err := errors.Join(WriteText(&table, results), WriteReport(&report, results)); err != nil {
		t.Fatal(err)
	}
	return table.String(), report.String()
}
