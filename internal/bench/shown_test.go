package bench

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
			if err := WriteText(&table, results); err != nil {
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
