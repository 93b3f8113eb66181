package coap

import (
	"context"
	"fmt"
	"net/http"
	"os"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/client"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/coap/node"
	"github.com/weir-lb/weir/internal/control/admin"
	"github.com/weir-lb/weir/internal/handover"
	"github.com/weir-lb/weir/internal/metrics"
)

// untilEnd returns the context of a server that another process follows when ctx ends, and that a signal to end has ended when signalled
// does. Then its sessions stay if there is a state directory, else their clients receive alerts, in a drain if there is a time for one.
func untilEnd(ctx, signalled context.Context, server *node.Node, k *handover.Store, cfg *node.Config) (running context.Context, end func()) {
	running, end = context.WithCancel(context.WithoutCancel(ctx))
	stays := k.Stats().State != ""
	var d *drain
	if cfg.DrainTimeout > 0 && !stays {
		d = newDrain(signalled, server, k, cfg)
	}
	go func() {
		defer end()
		if d != nil {
			defer d.release()
		}
		select {
		case <-running.Done():
		case <-ctx.Done():
			server.Leave()
		case <-signalled.Done():
			switch {
			case stays:
				server.Leave()
			case d != nil && d.run(ctx, running):
				server.Leave() // another process follows
			}
		}
	}()
	return running, end
}

// coapAdmin is the admin API of a server. others: the Pods of its cluster; nil: the nodes are no Pods.
func coapAdmin(server *node.Node, k *handover.Store, others *podCluster) admin.Config {
	status := func() node.Status {
		s, stored := server.Status(), k.Stats()
		s.PID = os.Getpid()
		s.Handover = node.HandoverStatus{
			Supervisor: stored.Supervisor, PID: stored.PID, Starts: stored.Starts, Upgrades: stored.Upgrades, Last: stored.Last,
			Stored: stored.Sockets, Capacity: stored.Capacity, Refused: stored.Refused, Waiting: stored.Waiting, State: stored.State, Unusable: stored.Unusable,
		}
		if others != nil {
			d := node.DiscoveryStatus(others.progress.Status())
			s.Discovery = &d
		}
		return s
	}
	return admin.Config{
		Ready: server.Ready, Owners: server.WatchOwners, Status: func() any { return status() }, Metrics: func() []metrics.Sample { return metrics.Of(status()) },
		Plots: plots(),
		Routes: append(moveRoutes(server), admin.Route{Pattern: "POST /upgrade", Answer: func(*http.Request) (any, error) {
			if err := k.RequestUpgrade(); err != nil {
				return nil, err
			}
			return v1.CoAPUpgradeAnswer{PID: os.Getpid()}, nil
		}}),
	}
}

func newCoapUpgradeCommand() *cobra.Command {
	return cli.UpgradeCommand(cli.CoapPart(), "server", "DTLS session", func(ctx context.Context, running *client.Client) (any, string, error) {
		done, err := running.UpgradeCoAP(ctx)
		if err != nil {
			return nil, "", err
		}
		return done, fmt.Sprintf("upgraded from %s to %s in %.0f ms: process %d has %d DTLS sessions, %d are lost",
			done.From, done.To, done.Seconds*1000, done.PID, done.Sessions, done.Lost), nil
	})
}
