package bench

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/bench"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/measuring"
	"github.com/weir-lb/weir/internal/privilege"
	"github.com/weir-lb/weir/internal/testbed/measure"
)

func newBenchKubeScaleCommand() *cobra.Command {
	var config bench.KubeScaleConfig
	var out measuring.Output
	cmd := &cobra.Command{
		Use:   "kube-scale",
		Short: "A large Kubernetes cluster that changes: how soon does the kernel serve a Pod that became ready?",
		Long: `Run a real Kubernetes API server with many Gateways, routes, Services and endpoints in a network namespace, weir operator and a load balancer in the
kernel, change endpoints at a rate, and measure from a Pod's readiness until the first datagram to its Gateway reaches it.

The programs of the control plane come from make kubelab; run it in the directory of Weir's source, which names the CRDs of the Gateway API.
The exit code is 1 if a Pod that became ready is not served. The default takes about 4 minutes on 2 cores.`,
		Example: `  sudo weir bench run kube-scale --report kube-scale.html
  sudo weir bench run kube-scale --gateways 100 --duration 10s --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return out.Run(cmd, privilege.BenchDSR, &config.Run, config.Validate(), func(ctx context.Context) ([]*measure.Result, error) {
				return bench.KubeScale(ctx, config)
			})
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&config.Gateways, "gateways", 1000, "number of Gateways, each with a UDPRoute and a Service")
	flags.IntVar(&config.Endpoints, "endpoints", 10, "endpoints of each Service")
	flags.IntVar(&config.Rate, "rate", 100, "changes of endpoints a second")
	cli.DurationVar(flags, &config.Duration, "duration", time.Minute, "how long they change")
	out.Add(cmd)
	return cmd
}

func newBenchKubeSessionsCommand() *cobra.Command {
	var config bench.KubeSessionsConfig
	var out measuring.Output
	cmd := &cobra.Command{
		Use:   "kube-sessions",
		Short: "Replace the parts of a Kubernetes cluster while sessions live: what is lost?",
		Long: `Run a real Kubernetes API server, weir operator, a load balancer in the kernel, and Pods that are processes in network namespaces; let flows of UDP, TCP and
DTLS and TURN allocations live; and replace one part after the other.

Events:
` + measuring.IndentNames(bench.KubeEvents()) + `
The programs of the control plane come from make kubelab; run it in the directory of Weir's source, which has the CRDs. The exit code is 1 if
anything is lost. The default takes about 4 minutes on 2 cores.`,
		Example: `  sudo weir bench run kube-sessions --report kube-sessions.html
  sudo weir bench run kube-sessions --flows 40 --allocations 0 --events balancer-kill,operator-kill --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return out.Run(cmd, privilege.BenchDSR, &config.Run, config.Validate(), func(ctx context.Context) ([]*measure.Result, error) {
				return bench.KubeSessions(ctx, config)
			})
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&config.Flows, "flows", 1000, "flows through the load balancer: a quarter UDP, a quarter TCP, half DTLS")
	flags.IntVar(&config.Allocations, "allocations", 200, "TURN allocations; 0: no TURN gateways")
	cli.DurationVar(flags, &config.Every, "every", 3*time.Second, "from the end of an event to the next one, at least 2 s")
	cli.DurationVar(flags, &config.Gone, "gone", time.Minute, "how long the API server is away")
	flags.StringSliceVar(&config.Events, "events", nil, "which events (default all)")
	out.Add(cmd)
	return cmd
}
