package turn

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/kube/discovery"
	"github.com/weir-lb/weir/internal/kube/lookup"
)

// stunnerdFlags are the options of stunnerd, and some of `weir turn gateway`.
type stunnerdFlags struct {
	gatewayFlags
	watch   bool
	level   string
	threads int
	verbose bool
	health  string
	service string // address of the config discovery service, in place of one that is found
	port    int    // of the service, in its Pods or at that address
}

// newStunnerdCommand is the gateway with the command line of stunnerd. It is in no help of Weir, because its options are another
// program's: letters there mean something else than in the rest of Weir.
func newStunnerdCommand() *cobra.Command {
	f := &stunnerdFlags{}
	cmd := &cobra.Command{
		Use:    "stunnerd [TURN-URI]",
		Short:  "Run the TURN gateway with the options and the environment of STUNner's stunnerd",
		Hidden: true,
		Long: `Run the TURN gateway with the options and the environment of STUNner's stunnerd, as the data plane of STUNner's operator or Weir's. A
weir that is invoked under the name stunnerd is this command.

With --watch the gateway starts without a configuration: alive, not ready, health port 8086. It becomes ready with the first
configuration that has a listener, and keeps the last one while the config discovery service is away, in a restart by its supervisor,
and with --state DIR also when all processes ended. Without --watch the configuration is read once; a failure ends the process.

SIGTERM ends the watch and makes the gateway not ready (unless --force-ready-status): it takes no new allocations, and ends with code 0
when the last allocation is gone. A second signal ends at once.`,
		Example: `  weir turn stunnerd -w -c http://stunner-config-discovery.stunner-system:13478 -i media/udp-gateway
  STUNNER_NAMESPACE=media STUNNER_NAME=udp-gateway STUNNER_CONFIG_ORIGIN=op:13478 weir turn stunnerd -w --udp-thread-num=16
  weir turn stunnerd -c file:///etc/stunnerd/stunnerd.yaml -v
  weir turn stunnerd -w -c k8s -i media/udp-gateway --kubeconfig ~/.kube/config
  weir turn stunnerd -l all:DEBUG turn://user1:passwd1@127.0.0.1:3478`,
		RunE: func(cmd *cobra.Command, args []string) error { return runStunnerd(cmd, f, args) },
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.config.Path, "config", "c", "", "configuration: HOST:PORT or URL of a config discovery service, file://PATH, or k8s: the service is found at the API server (default $"+envOrigin+", else :13478)")
	flags.BoolVarP(&f.watch, "watch", "w", false, "follow the configuration")
	flags.StringVarP(&f.level, "log", "l", "", "log levels SCOPE:LEVEL,...; wins over the configuration's (default all:INFO)")
	flags.StringVar(&f.serve.Log, "log-format", "text", "text or json")
	flags.StringVarP(&f.id, "id", "i", "", "NAMESPACE/NAME of the configuration (default $"+envNamespace+"/$"+envName+", else default/stunnerd-HOSTNAME)")
	flags.IntVarP(&f.threads, "udp-thread-num", "u", 0, "workers, at most one per core (default one per core)")
	flags.BoolVarP(&f.check, "dry-run", "d", false, "check the configuration, print what it means, open nothing")
	flags.BoolVarP(&f.verbose, "verbose", "v", false, "the same as -l all:DEBUG")
	flags.BoolVar(&f.force, "force-ready-status", false, "stay ready while allocations end")
	f.addCluster(flags)
	flags.StringVar(&f.service, "cds-server-address", "", "of -c k8s: address of the config discovery service, which is not looked for then")
	flags.StringVar(&f.cluster.Namespace, "cds-server-namespace", "", "of -c k8s: namespace of the config discovery service (default any)")
	flags.IntVar(&f.port, "cds-server-port", discovery.DefaultPort, "of -c k8s: port of the config discovery service")
	flags.StringVar(&f.health, "health-address", defaultHealth, "address of the health endpoint until a configuration names one; empty for none")
	flags.IntVar(&f.unproven, "unauthenticated", 0, "as of weir turn gateway")
	cli.DurationVar(flags, &f.drainTimeout, "drain-timeout", 0, "as of weir turn gateway")
	f.serve.AddAddresses(cmd, cli.StunnerdPart())
	f.handover.Add(cmd, "allocations", "what a start after the end of every process takes up again")
	return cmd
}

func runStunnerd(cmd *cobra.Command, f *stunnerdFlags, args []string) error {
	source, err := f.source(args)
	if err != nil {
		return cli.UsageError(err)
	}
	if f.threads < 0 || f.threads > 1<<16 {
		return cli.UsageError(fmt.Errorf("-u %d is no number of workers; write 1 or more, or 0 for one per core", f.threads))
	}
	f.workers = min(f.threads, runtime.NumCPU())
	source.level = f.level
	if f.verbose && f.level == "" {
		source.level = "all:DEBUG"
	}
	return runGateway(cmd, &f.gatewayFlags, source)
}

// source finds out where the configuration comes from.
func (f *stunnerdFlags) source(args []string) (*gatewaySource, error) {
	limit, err := f.limit()
	if err != nil {
		return nil, err
	}
	source := &gatewaySource{flags: &f.gatewayFlags, limit: limit}
	if len(args) > 1 {
		return nil, fmt.Errorf("%d TURN URIs; write one, or list the listeners in a configuration", len(args))
	}
	if len(args) == 1 { // as in stunnerd, it wins over a configuration
		source.uri = args[0]
		return source, nil
	}
	origin := f.config.Path
	if origin == "" {
		origin = os.Getenv(envOrigin)
	}
	switch path, isFile := strings.CutPrefix(origin, "file://"); {
	case isFile:
		source.file = config.NewFile(path)
		return source, nil
	case origin == "":
		origin = fmt.Sprintf(":%d", discovery.DefaultPort)
	case origin == originKubernetes:
		if f.port < 1 || f.port > 65535 {
			return nil, fmt.Errorf("--cds-server-port %d: write 1 to 65535", f.port)
		}
		if f.service != "" {
			origin, f.cluster = net.JoinHostPort(f.service, strconv.Itoa(f.port)), lookup.Config{}
		} else if f.port != discovery.DefaultPort {
			f.cluster.Port = f.port
		}
	}
	if f.id == "" && (os.Getenv(envName) == "" || os.Getenv(envNamespace) == "") {
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("--id is missing, and this host has no name: %w", err)
		}
		f.id = "default/stunnerd-" + host
	}
	if source.found, err = newDiscovered(origin, f.id, f.watch, f.cluster); err == nil {
		source.found.first = f.health
	}
	return source, err
}
