package bench

import (
	"os"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/bench"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// TestRootSteeredSessionsMove has 200 DTLS sessions change their source
// address at least three times under load. Behind the kernel data path none is lost and no
// record reaches another node than its session's; without it they do.
func TestRootSteeredSessionsMove(t *testing.T) {
	netlabtest.Root(t)
	if !clitest.OwnProcess(t) {
		return
	}
	const clients = 200
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range bench.MovedPaths() {
		t.Run(path, func(t *testing.T) {
			// A machine that is too busy for three changes in the time gets more.
			run := func(duration time.Duration) *measure.Result {
				results, err := bench.Coap(t.Context(), bench.CoapConfig{
					Run: bench.Run{Binary: self}, Clients: clients, Warmup: time.Second, Duration: duration, Interval: 100 * time.Millisecond, Paths: []string{path},
				})
				if err != nil {
					t.Fatal(err)
				}
				return results[0]
			}
			duration := 2500 * time.Millisecond
			r := run(duration)
			for try := 0; try < 3 && figure(r, "changed addresses") < 3*clients; try++ {
				duration *= 2
				r = run(duration)
			}
			if n := figure(r, "changed addresses"); n < 3*clients {
				t.Errorf("%v changes of an address, want at least %d", n, 3*clients)
			}
			if n := figure(r, "lost sessions"); n != 0 {
				t.Errorf("%v sessions lost or begun again", n)
			}
			if r.Errors != 0 {
				t.Errorf("%d requests failed", r.Errors)
			}
			if n := figure(r, "forwarded records"); (n == 0) != (path == "moved-ebpf") {
				t.Errorf("%v records were forwarded between nodes", n)
			}
		})
	}
}

// figure is one figure of a result; 0 when it has none of that name.
func figure(r *measure.Result, name string) float64 {
	for _, f := range r.Figures {
		if f.Name == name {
			return f.Value
		}
	}
	return 0
}
