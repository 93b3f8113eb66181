package main

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/cli/status/statustest"
	"github.com/weir-lb/weir/internal/tcpscale"
	"github.com/weir-lb/weir/internal/tcpscale/stats"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// The kernel's data path: TestRootKernelDrain. The queues': TestRootNFQViews, with a fast path TestRootNFQFast. The tunnel's end:
// TestRootDecapStartsAndStops. A gateway of a STUNner file: TestTurnGatewayOfStunner.
func TestPromtoolAcceptsTheMetrics(t *testing.T) {
	netlabtest.Tools(t, "promtool")
	file, addresses := filepath.Join(t.TempDir(), "weir.yaml"), clitest.FreeAddresses(t, 6)
	if err := os.WriteFile(file, []byte(clitest.LBConfig(addresses[0], addresses[1])), 0o600); err != nil {
		t.Fatal(err)
	}
	for part, args := range map[string][]string{
		"lb":   {"lb", "run", "-c", file},
		"nat":  {"nat", addresses[2], addresses[3]},
		"coap": {"coap", "server", "--listen", "127.0.0.1:0", "--dtls-cluster", clitest.ClusterArgs(addresses[4:], 0), "--workers", "1"},
		"turn": {"turn", "gateway", "turn://u:p@" + addresses[1], "--workers", "1"},
	} {
		t.Run(part, func(t *testing.T) {
			statustest.Check(t, part, clitest.HTTPGet(t, clitest.Start(t, part, args...).Socket, "/metrics"))
		})
	}
	t.Run("tcp stats", func(t *testing.T) {
		service, answer := stats.New(stats.Config{Expect: 2}), httptest.NewRecorder()
		for _, role := range []string{tcpscale.RoleServer, tcpscale.RoleClient} {
			report := tcpscale.Report{Role: role, ID: "a", Host: "h", PID: 1, Failures: map[string]uint64{"timeout": 1}}
			if _, err := service.Take(time.Now(), netip.MustParseAddr("192.0.2.1"), &report); err != nil {
				t.Fatal(err)
			}
		}
		service.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		statustest.Check(t, "tcp stats", answer.Body.String())
	})
}
