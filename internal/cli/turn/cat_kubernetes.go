package turn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/kube/discovery"
	"github.com/weir-lb/weir/internal/kube/lookup"
	"github.com/weir-lb/weir/internal/turn/authservice"
	"github.com/weir-lb/weir/internal/turn/turncat"
)

const (
	lookupTimeout = 20 * time.Second // of the first look, which the user waits for
	againTimeout  = 5 * time.Second
	lookAgain     = 30 * time.Second // how old a configuration may be for a new session
)

// clusterGateway is a gateway in Kubernetes whose address and credentials are looked up.
type clusterGateway struct {
	gateway turncat.Gateway
	user    string
	ttl     time.Duration
	read    func(ctx context.Context) ([]byte, error) // the gateway's configuration now

	mu      sync.Mutex // guards what follows
	service *authservice.Service
	at      time.Time // when it was read
}

// lookUp finds the gateway, its address and, unless flags name others, its credentials.
func (f *turnCatFlags) lookUp(ctx context.Context, text string) error {
	gateway, err := turncat.ParseGateway(text)
	if err != nil {
		return cli.UsageError(err)
	}
	g := &clusterGateway{gateway: gateway, user: cmp.Or(f.user, os.Getenv(envTurnUser)), ttl: f.ttl}
	if c := &f.cluster; cmp.Or(c.discovery, os.Getenv(envServiceAddress)) != "" && (c.kubeconfig != "" || c.context != "") {
		return cli.UsageError(errors.New("--discovery excludes --kubeconfig and --context: the service is reached without the API server"))
	}
	if g.read, err = f.cluster.reader(discovery.ID{Namespace: gateway.Namespace, Name: gateway.Name}); err != nil {
		return cli.UsageError(err)
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	issued, err := g.look(ctx, time.Now())
	if err != nil {
		return fmt.Errorf("%v: %w", gateway, err)
	}
	if f.config.Server, err = turncat.ParseServer(issued.URIs[0]); err != nil {
		return fmt.Errorf("%v: %w", gateway, err)
	}
	if f.config.Credentials == nil {
		f.config.Credentials = g.credentials
	}
	return nil
}

// clusterFlags say where the configuration of a gateway in Kubernetes is.
type clusterFlags struct {
	discovery, kubeconfig, context string
}

// add declares them; of is what they are about.
func (f *clusterFlags) add(flags *pflag.FlagSet, of string) {
	flags.StringVar(&f.discovery, "discovery", "", "of "+of+": config discovery service, HOST:PORT, http://HOST:PORT, https://HOST:PORT (default $"+envServiceAddress+", else looked up at the API server)")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "of "+of+": file that names the API server and the credential (default $KUBECONFIG, ~/.kube/config, else the Pod's service account)")
	flags.StringVar(&f.context, "context", "", "of "+of+": context of the kubeconfig (default its current one)")
}

// lookup is where the API server is.
func (f *clusterFlags) lookup() lookup.Config {
	return lookup.Config{Kubeconfig: f.kubeconfig, Context: f.context}
}

// reader returns how the configuration is read: from the service that --discovery names, or through the API server.
func (f *clusterFlags) reader(id discovery.ID) (func(context.Context) ([]byte, error), error) {
	service := cmp.Or(f.discovery, os.Getenv(envServiceAddress))
	if service == "" {
		return func(ctx context.Context) ([]byte, error) { return lookup.Gateway(ctx, f.lookup(), id) }, nil
	}
	origin, err := discovery.ParseOrigin(service)
	if err != nil {
		return nil, fmt.Errorf("--discovery: %w", err)
	}
	return func(ctx context.Context) ([]byte, error) { return discovery.Get(ctx, origin, id, "") }, nil
}

// look reads the configuration and returns the credentials of the listener.
func (g *clusterGateway) look(ctx context.Context, now time.Time) (i authservice.Issued, err error) {
	config, err := g.read(ctx)
	if err != nil {
		return i, err
	}
	service, err := authservice.New(authservice.Options{})
	if err != nil {
		return i, err
	}
	if err := service.Set(config); err != nil {
		return i, err
	}
	g.mu.Lock()
	g.service, g.at = service, now
	g.mu.Unlock()
	return g.issue(service)
}

func (g *clusterGateway) issue(service *authservice.Service) (authservice.Issued, error) {
	return service.Credentials(g.gateway.Namespace, g.gateway.Name, g.gateway.Listener, g.user, g.ttl)
}

// credentials are those of the gateway for a new session: of its configuration now, or the last one if that cannot be read.
func (g *clusterGateway) credentials(now time.Time) (turncat.Credentials, error) {
	g.mu.Lock()
	service, old := g.service, now.Sub(g.at) >= lookAgain
	g.mu.Unlock()
	issued, err := authservice.Issued{}, error(nil)
	if old {
		ctx, cancel := context.WithTimeout(context.Background(), againTimeout)
		issued, err = g.look(ctx, now)
		cancel()
	}
	if !old || err != nil {
		issued, err = g.issue(service)
	}
	return turncat.Credentials{User: issued.Username, Password: issued.Password, Expires: issued.Expires}, err
}
