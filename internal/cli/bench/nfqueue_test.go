package bench

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/cli/clitest"
)

func TestBandwidthsAreReadAsIperfWritesThem(t *testing.T) {
	list, err := parseBandwidths([]string{"500M", "2G", "1.5e6"})
	if err != nil || fmt.Sprint(list) != "[5e+08 2e+09 1.5e+06]" {
		t.Errorf("%v, %v", list, err)
	}
	for want, args := range map[string][]string{
		`--bandwidths "2T"`: {"--bandwidths", "2T"},
		"bandwidth 1 bit/s": {"--bandwidths", "1"},
		`no load "x"`:       {"--loads", "x"},
		`no path "weir"`:    {"--only", "weir"},
	} {
		if _, err := clitest.Execute(t, append([]string{"bench", "run", "nfqueue"}, args...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", args, err)
		}
	}
}
