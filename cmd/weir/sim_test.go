package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSimFragments(t *testing.T) {
	takesSeconds(t)
	page := filepath.Join(t.TempDir(), "loss.html")
	out, err := execute(t, "sim", "fragments", "--table", "nfqlb", "--hsize", "199", "--rate", "1000", "--duration", "60s", "--repeat", "2", "--json", "--report", page)
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
	if out, err = execute(t, "sim", "fragments", "--size", "223", "--buckets", "0", "--rate", "1000"); err != nil || !strings.Contains(out, "percentLoss") || !strings.Contains(out, "loses nothing") || !strings.Contains(out, "limits.fragments:") {
		t.Errorf("%v: %s", err, out)
	}
	for _, bad := range [][]string{{"--table", "linux"}, {"--hsize", "5", "--size", "5"}, {"--rate", "0"}, {"--duration", "2000h"}} {
		var exit *exitError
		if _, err := execute(t, append([]string{"sim", "fragments"}, bad...)...); !errors.As(err, &exit) || exit.code != exitUsage {
			t.Errorf("%v: %v", bad, err)
		}
	}
}
