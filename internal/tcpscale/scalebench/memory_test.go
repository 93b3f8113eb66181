package scalebench

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// TestMemoryThatShrankIsNotMeasured: what a few connections take is less than what the rest of the machine gives back
// meanwhile. A connection never takes less than nothing.
func TestMemoryThatShrankIsNotMeasured(t *testing.T) {
	took := 384.0
	r := &Result{KernelBytes: growth(-3_000), AvailableBytes: growth(0), ClientBytes: &took, ServerBytes: &took}
	text, err := json.Marshal(r)
	if err != nil || strings.Contains(string(text), "kernel_bytes") || strings.Contains(string(text), "available_bytes") {
		t.Errorf("%v: %s", err, text)
	}
	if got := r.kernelMemory(); got != "too small to measure; available memory did not fall" {
		t.Errorf("shows %q", got)
	}
	r.KernelBytes, r.AvailableBytes = growth(4_000), growth(5_000)
	if got := r.kernelMemory(); got != "4000 B a connection (both ends); available memory fell by 5000 B" {
		t.Errorf("shows %q", got)
	}
	few := peerFigures{held: 20, kernel: 1_000, span: time.Second}
	run := few.run(weirPeer(), &peerFigures{held: 1, kernel: 9_000})
	if text, err = json.Marshal(run); err != nil || !strings.Contains(string(text), `"kernel_bytes_per_connection":null`) {
		t.Errorf("%v: %s", err, text)
	}
}
