package operator

import (
	"fmt"
	"log/slog"
	"net"
	"strings"

	"github.com/spf13/pflag"

	"github.com/weir-lb/weir/internal/kube/discovery"
	"github.com/weir-lb/weir/internal/kube/turn"
	"github.com/weir-lb/weir/internal/kube/turn/controller"
)

// turnFlags are those about TURN gateways.
type turnFlags struct {
	options turn.Options
	listen  string
}

func (f *turnFlags) add(set *pflag.FlagSet) {
	o := &f.options
	set.StringVar(&o.Controller, "turn-controller", controller.DefaultName, "controllerName of the GatewayClasses of TURN gateways; STUNner's is stunner.l7mp.io/gateway-operator")
	set.StringVar(&o.Image, "turn-image", "weir:latest", "image of TURN gateways whose Dataplane names none")
	set.StringVar(&f.listen, "discovery", ":13478", "address of the config discovery service, which gives TURN gateways their configurations")
	set.StringVar(&o.Discovery, "discovery-url", "http://weir-operator:13478", "URL at which Pods of TURN gateways reach it")
	set.BoolVar(&o.Endpoints, "turn-endpoints", true, "the peers of a Service are its endpoints; false: the addresses of its DNS name")
	set.BoolVar(&o.ClusterIPs, "turn-cluster-ips", true, "the cluster IP of a Service is a peer as well")
	set.BoolVar(&o.Grants, "turn-reference-grants", false, "backends of STUNner's UDPRoutes in other namespaces need a ReferenceGrant, as those of standard UDPRoutes always do")
	set.StringVar(&o.Class, "turn-load-balancer-class", "", "loadBalancerClass of the Services of TURN gateways (default the cluster's own load balancer)")
	set.StringVar(&o.Domain, "cluster-domain", "cluster.local", "domain of the cluster's DNS")
}

// controller makes the controller of TURN gateways.
func (f *turnFlags) controller(log *slog.Logger) (*controller.Turn, error) {
	if group, name, ok := strings.Cut(f.options.Controller, "/"); !ok || group == "" || name == "" {
		return nil, fmt.Errorf("--turn-controller %q: write DOMAIN/NAME, such as %s", f.options.Controller, controller.DefaultName)
	}
	if _, _, err := net.SplitHostPort(f.listen); err != nil {
		return nil, fmt.Errorf("--discovery %q: write HOST:PORT or :PORT", f.listen)
	}
	if _, err := discovery.ParseOrigin(f.options.Discovery); err != nil {
		return nil, fmt.Errorf("--discovery-url: %w", err)
	}
	return controller.New(controller.Options{Turn: f.options, Listen: f.listen, Log: log.With("scope", "turn")}), nil
}
