package operator

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"

	"github.com/spf13/pflag"

	"github.com/weir-lb/weir/internal/kube/discovery"
	"github.com/weir-lb/weir/internal/kube/turn"
	"github.com/weir-lb/weir/internal/kube/turn/controller"
	"github.com/weir-lb/weir/internal/readfile"
	"github.com/weir-lb/weir/internal/turn/authservice"
)

// The modes of STUNner's operator.
const (
	modeManaged = "managed"
	modeLegacy  = "legacy"
)

// turnFlags are those about TURN gateways.
type turnFlags struct {
	options turn.Options
	listen  string

	mode                          string
	auth, authPublic, authKeyFile string
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
	set.StringVar(&f.mode, "dataplane-mode", modeManaged, "managed: Pods are made for each TURN Gateway; legacy: their configuration is in a ConfigMap stunnerd-config, for Pods of your own")
	set.StringVar(&f.auth, "auth", "", "HOST:PORT at which applications get credentials of TURN gateways, as of weir turn auth (default nowhere)")
	set.StringVar(&f.authPublic, "auth-public-address", "", "address of all gateways in the answers, in place of their own")
	set.StringVar(&f.authKeyFile, "auth-key-file", "", "file with the key that requests for credentials must have as key=; none: every request is answered")
	set.StringVar(&o.Domain, "cluster-domain", "cluster.local", "domain of the cluster's DNS")
}

// controller makes the controller of TURN gateways.
func (f *turnFlags) controller(log *slog.Logger) (*controller.Turn, error) {
	if group, name, ok := strings.Cut(f.options.Controller, "/"); !ok || group == "" || name == "" {
		return nil, fmt.Errorf("--turn-controller %q: write DOMAIN/NAME, such as %s", f.options.Controller, controller.DefaultName)
	}
	switch f.mode {
	case modeManaged:
	case modeLegacy:
		f.options.Legacy = true
	default:
		return nil, fmt.Errorf("--dataplane-mode %q: write managed or legacy", f.mode)
	}
	if _, _, err := net.SplitHostPort(f.listen); err != nil {
		return nil, fmt.Errorf("--discovery %q: write HOST:PORT or :PORT", f.listen)
	}
	if _, err := discovery.ParseOrigin(f.options.Discovery); err != nil {
		return nil, fmt.Errorf("--discovery-url: %w", err)
	}
	auth, err := f.authService(log)
	if err != nil {
		return nil, err
	}
	return controller.New(controller.Options{Turn: f.options, Listen: f.listen, Auth: auth, AuthListen: f.auth, Log: log.With("scope", "turn")}), nil
}

// authService is nil if there should be none.
func (f *turnFlags) authService(log *slog.Logger) (*authservice.Service, error) {
	options := authservice.Options{PublicHost: f.authPublic}
	if f.auth == "" {
		if f.authPublic != "" || f.authKeyFile != "" {
			return nil, errors.New("--auth-public-address and --auth-key-file are about --auth; give it too")
		}
		return nil, nil
	}
	if _, _, err := net.SplitHostPort(f.auth); err != nil {
		return nil, fmt.Errorf("--auth %q: write HOST:PORT or :PORT", f.auth)
	}
	if f.authKeyFile == "" {
		log.Warn("everyone who reaches --auth gets credentials; require a key with --auth-key-file, or let only application servers reach it", "address", f.auth)
	} else {
		const longest = 4096
		text, err := readfile.Once(f.authKeyFile, longest)
		if err != nil {
			return nil, fmt.Errorf("--auth-key-file: %w", err)
		}
		if options.Key = strings.TrimSpace(string(text)); options.Key == "" {
			return nil, fmt.Errorf("--auth-key-file %s: it is empty; write a key in it", f.authKeyFile)
		}
	}
	service, err := authservice.New(options)
	if err != nil {
		return nil, fmt.Errorf("--auth-public-address: %w", err)
	}
	return service, nil
}
