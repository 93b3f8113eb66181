package turn

import (
	"io"
	"net/http"
	"os"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/control/admin"
	"github.com/weir-lb/weir/internal/handover"
	"github.com/weir-lb/weir/internal/metrics"
	"github.com/weir-lb/weir/internal/turn/gateway"
)

// gatewayStore is where a gateway stores its sockets and records; nil if nothing would be stored.
func gatewayStore(k *handover.Store) gateway.Store {
	if !cli.Stores(k) {
		return nil
	}
	return k
}

// maxMoved bounds the body of an import: 64 MiB of records are some 100,000.
const maxMoved = 64 << 20

// addHandover adds to a gateway's admin API what is stored, and the requests of `weir turn upgrade`, `export` and
// `import`.
func addHandover(api *admin.Config, k *handover.Store, g *gateway.Gateway, configured func() v1.TurnConfigStatus) {
	others := api.Metrics
	api.Metrics = func() []metrics.Sample { return append(others(), metrics.Of(k.Stats())...) }
	api.Status = func() any {
		status := configured()
		return v1.TurnStatus{
			TurnProcess: v1.TurnProcess{PID: os.Getpid(), Version: cli.ReadBuildInfo().Version, Handover: handoverText(k.Stats())},
			TurnStats:   turnText(g.Stats()), Config: &status, Names: g.Names(),
		}
	}
	api.Routes = append(api.Routes, []admin.Route{
		{Pattern: "POST /upgrade", Answer: func(*http.Request) (any, error) {
			if err := k.RequestUpgrade(); err != nil {
				return nil, err
			}
			return v1.TurnUpgradeAnswer{PID: os.Getpid()}, nil
		}},
		{Pattern: "GET /allocations", Answer: func(r *http.Request) (any, error) {
			records, err := g.Export(r.Context())
			return movedAllocations{Allocations: records}, err
		}},
		{Pattern: "POST /allocations", MaxBody: maxMoved, Answer: func(r *http.Request) (any, error) {
			text, err := io.ReadAll(r.Body)
			if err != nil {
				return nil, err
			}
			return importAllocations(r.Context(), g, text)
		}},
	}...)
}
