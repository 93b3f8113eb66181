package operator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/control/admin"
	"github.com/weir-lb/weir/internal/control/discovery"
	"github.com/weir-lb/weir/internal/kube/l4"
	"github.com/weir-lb/weir/internal/kube/l4/policyv1alpha1"
	"github.com/weir-lb/weir/internal/kube/operator"
	"github.com/weir-lb/weir/internal/kube/publish"
	"github.com/weir-lb/weir/internal/kube/turn/controller"
	"github.com/weir-lb/weir/internal/metrics"
)

// requestsPerSecond bounds what the operator asks of the API server, which has limits of its own for each client.
const requestsPerSecond = 400

// flags are those of `weir operator`.
type flags struct {
	kubeconfig string
	election   string
	throttle   time.Duration
	secrets    time.Duration
	serves     []string
	l4         l4Flags
	turn       turnFlags
	serve      cli.ServeFlags
}

func newOperatorCommand() *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:   "operator",
		Short: "Make Gateways and Services of a Kubernetes cluster work with Weir's data planes",
		Long: `Make Gateways and Services of a Kubernetes cluster work with Weir's data planes.

The operator follows the cluster's objects and serves each GatewayClass whose controllerName is ` + l4.ControllerName + ` (load
balancing of UDP and TCP) or --turn-controller (TURN gateways, with STUNner's own objects). Each change renders the whole state of the world, at most once in --throttle; only what differs is written.

Gateways get their addresses from --address-pool. The configuration of the load balancer is written to --config-out, and a Gateway is
Programmed once the load balancer at --balancer has applied it; or load balancers on any number of nodes have it from --lb-discovery, and
a Gateway is Programmed once each that is connected has applied it.

Inside a Pod it uses the service account; elsewhere --kubeconfig or $KUBECONFIG.`,
		Example: `  weir operator --address-pool 192.0.2.0/24 --config-out /run/weir/l4.yaml
  weir operator --address-pool 192.0.2.0/24 --lb-discovery :13479 --lb-discovery-tls-cert tls.crt --lb-discovery-tls-key tls.key --lb-discovery-token-file token
  weir operator --leader-election-namespace weir-system
  weir operator --kubeconfig ~/.kube/config
  weir operator --turn-controller stunner.l7mp.io/gateway-operator   # in place of STUNner's operator`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := cli.NewLogger(cmd.ErrOrStderr(), f.serve.Log)
			if err != nil {
				return cli.UsageError(err)
			}
			return run(cmd, &f, log)
		},
	}
	set := cmd.Flags()
	set.StringVar(&f.kubeconfig, "kubeconfig", "", "file that names the API server and the credential (default the Pod's service account, else $KUBECONFIG)")
	set.StringVar(&f.election, "leader-election-namespace", "", "namespace of the Lease by which one of several operators becomes the one that writes (default: there is only one operator)")
	cli.DurationVar(set, &f.throttle, "throttle", operator.DefaultThrottle, "shortest time between two renders of the whole state of the world")
	cli.DurationVar(set, &f.secrets, "secret-interval", operator.DefaultSecretInterval, "how often the Secrets that are referred to are read again")
	set.StringSliceVar(&f.serves, "controllers", []string{"l4", "turn"}, "controllers that run, several separated by commas: l4 or turn")
	f.l4.add(set)
	f.turn.add(set)
	f.serve.Add(cmd, cli.OperatorPart())
	return cmd
}

func run(cmd *cobra.Command, f *flags, log *slog.Logger) error {
	config, err := f.rest()
	if err != nil {
		return cli.UsageError(err)
	}
	if f.throttle < 0 || f.throttle > time.Minute {
		return cli.UsageError(fmt.Errorf("--throttle %v: write 0s to 1m", f.throttle))
	}
	if f.secrets < 100*time.Millisecond || f.secrets > time.Hour {
		return cli.UsageError(fmt.Errorf("--secret-interval %v: write 100ms to 1h", f.secrets))
	}
	if f.l4.advertise != "" && f.election == "" {
		return cli.UsageError(errors.New("--lb-discovery-advertise is about several operators; give them --leader-election-namespace"))
	}
	served, err := f.controllers(log)
	if err != nil {
		return cli.UsageError(err)
	}
	controllers := served.all
	o, err := operator.New(operator.Options{
		SecretInterval: f.secrets,
		REST:           config, Controllers: controllers, Schemes: append(controller.Schemes(), policyv1alpha1.Install), Election: f.election, Throttle: f.throttle, Log: log,
		Labels: f.l4.labels(),
	})
	if err != nil {
		return err
	}
	if served.nodes != nil && f.l4.advertise != "" {
		served.nodes.Follow(func(ctx context.Context) (discovery.Origin, error) {
			labels, err := o.Leader(ctx)
			if err != nil {
				return discovery.Origin{}, err
			}
			return f.l4.leader(labels)
		})
	}
	log.Info("starting", "api_server", config.Host, "controllers", len(controllers))
	samples := func() []metrics.Sample {
		return append(o.Samples(), served.samples()...)
	}
	return cli.Serve(cmd.Context(), f.serve, log, admin.Config{Ready: o.Ready, Metrics: samples, Status: func() any { return o.Status() }, Plots: plots()}, nil, o.Run)
}

// served are the controllers that run.
type served struct {
	all   []operator.Controller
	turn  *controller.Turn   // nil: not served
	nodes *publish.Discovery // nil: there is none
}

// controllers makes those of --controllers.
func (f *flags) controllers(log *slog.Logger) (s served, err error) {
	for _, name := range f.serves {
		if name != "l4" && name != "turn" {
			return s, fmt.Errorf("--controllers %q: write l4, turn or l4,turn", name)
		}
	}
	layer4, turn := slices.Contains(f.serves, "l4"), slices.Contains(f.serves, "turn")
	switch {
	case !layer4 && !turn:
		return s, errors.New("--controllers: write l4, turn or l4,turn")
	case !layer4 && f.l4.output+f.l4.listen+f.l4.announce != "":
		return s, errors.New("--config-out, --lb-discovery and --announce are of the controller l4; add it to --controllers, or leave them out")
	case f.l4.announce != "" && f.l4.output+f.l4.listen == "":
		return s, errors.New("--announce without --config-out or --lb-discovery: no load balancer has a configuration of this operator; give one of them")
	case !turn && f.turn.auth != "":
		return s, errors.New("--auth is of the controller turn; add it to --controllers, or leave it out")
	}
	if layer4 {
		one, nodes, err := f.l4.controller(log)
		if err != nil {
			return s, err
		}
		s.all, s.nodes = append(s.all, one), nodes
	}
	if turn {
		if s.turn, err = f.turn.controller(log); err != nil {
			return s, err
		}
		s.all = append(s.all, s.turn.Controller())
	}
	return s, nil
}

func (s *served) samples() (all []metrics.Sample) {
	if s.turn != nil {
		all = s.turn.Samples()
	}
	if s.nodes != nil {
		stats := s.nodes.Stats()
		all = append(all, metrics.Of(&stats)...)
	}
	return all
}

// rest says where the API server is.
func (f *flags) rest() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("which API server? Give --kubeconfig, or run in a Pod with a service account: %w", err)
	}
	config.UserAgent = operator.Name
	config.QPS, config.Burst = requestsPerSecond, requestsPerSecond // the default of 5 a second takes minutes for a cluster of a thousand Gateways
	return config, nil
}
