package bench

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/testbed/measure"
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
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			results, err := ParseResults(text)
			if err != nil {
				t.Fatal(err)
			}
			var table, page bytes.Buffer
			if err := writeAny(name)(&table, results); err != nil {
				t.Fatal(err)
			}
			golden(t, "results/"+name+".txt", table.Bytes())
			if err := WriteReport(&page, results); err != nil {
				t.Fatal(err)
			}
			golden(t, "results/"+name+".html", page.Bytes())
		})
	}
}

func writeAny(name string) func(io.Writer, []*measure.Result) error {
	switch name {
	case "dsr":
		return WriteDSR
	case "live":
		return WriteLive
	case "nfqueue":
		return WriteNFQueue
	case "floods":
		return WriteFloods
	case "dump":
		return WriteDump
	case "soak":
		return WriteSoak
	case "turnsweep":
		return func(w io.Writer, results []*measure.Result) error {
			var runs []*TurnRun
			for _, r := range results {
				runs = append(runs, &TurnRun{Result: r})
			}
			return WriteTurn(w, TurnConfig{}, runs)
		}
	}
	return func(io.Writer, []*measure.Result) error { return nil } // its text is the command's
}
