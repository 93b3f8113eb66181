package main

import (
	"os"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/lab/bench"
	"github.com/weir-lb/weir/internal/lab/netlab/netlabtest"
)

// TestRootSteeredSessionsMove has 200 DTLS sessions change their source
// address at least three times under load. Behind the kernel data path none is lost and no
// record reaches another node than its session's; without it they do.
func TestRootSteeredSessionsMove(t *testing.T) {
	netlabtest.Root(t)
	const clients = 200
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(runAsWeir, "1")
	for _, road := range bench.MovedRoads() {
		t.Run(road, func(t *testing.T) {
			results, err := bench.Coap(t.Context(), bench.CoapConfig{
				Binary: self, Clients: clients, Warmup: time.Second, Duration: 2500 * time.Millisecond, Roads: []string{road},
			})
			if err != nil {
				t.Fatal(err)
			}
			r := results[0]
			if n := figure(r, bench.FigureMoves); n < 3*clients {
				t.Errorf("%v changes of an address, want at least %d", n, 3*clients)
			}
			if n := figure(r, bench.FigureSessions); n != 0 {
				t.Errorf("%v sessions lost or begun anew", n)
			}
			if r.Errors != 0 {
				t.Errorf("%d requests failed", r.Errors)
			}
			if n := figure(r, bench.FigureForeign); (n == 0) != (road == "moved-ebpf") {
				t.Errorf("%v records were forwarded between nodes", n)
			}
		})
	}
}
