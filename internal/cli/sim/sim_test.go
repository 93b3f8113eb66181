package sim

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/clitest"
)

func TestSimFragments(t *testing.T) {
	clitest.TakesSeconds(t)
	page := filepath.Join(t.TempDir(), "loss.html")
	out, err := clitest.Execute(t, "sim", "fragments", "--table", "nfqlb", "--hsize", "199", "--rate", "1000", "--duration", "60s", "--repeat", "2", "--json", "--report", page)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Verdict string `json:"verdict"`
		Mean    struct {
			PercentLoss float64 `json:"percent_loss"`
			BucketsPeak int     `json:"buckets_peak"`
		} `json:"mean"`
		Runs   []any `json:"runs"`
		Advice struct {
			WeirEntries int `json:"weir_entries"`
		} `json:"advice"`
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if got.Mean.PercentLoss < 57 || got.Mean.PercentLoss > 61 || got.Mean.BucketsPeak != 199 || len(got.Runs) != 2 || got.Advice.WeirEntries < 200 {
		t.Errorf("%s", out)
	}
	if text, err := os.ReadFile(page); err != nil || !strings.Contains(string(text), "Loss over rate") {
		t.Errorf("report: %v", err)
	}
	if out, err = clitest.Execute(t, "sim", "fragments", "--size", "223", "--buckets", "0", "--rate", "1000"); err != nil || !strings.Contains(out, "percentLoss") || !strings.Contains(out, "loses nothing") || !strings.Contains(out, "limits.fragments:") {
		t.Errorf("%v: %s", err, out)
	}
	for _, bad := range [][]string{{"--table", "linux"}, {"--hsize", "5", "--size", "5"}, {"--rate", "0"}, {"--duration", "2000h"}} {
		var exit *cli.ExitError
		if _, err := clitest.Execute(t, append([]string{"sim", "fragments"}, bad...)...); !errors.As(err, &exit) || exit.Code != cli.ExitUsage {
			t.Errorf("%v: %v", bad, err)
		}
	}
}
