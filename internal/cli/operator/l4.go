package operator

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"

	"github.com/spf13/pflag"

	"github.com/weir-lb/weir/client"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/kube/l4"
	"github.com/weir-lb/weir/internal/kube/operator"
	"github.com/weir-lb/weir/internal/kube/publish"
)

// l4Flags are those of the controller for layer 4.
type l4Flags struct {
	pools    []string
	output   string
	balancer string
	token    string
}

func (f *l4Flags) add(set *pflag.FlagSet) {
	set.StringSliceVar(&f.pools, "address-pool", nil, "prefix whose addresses Gateways and Services get, such as 192.0.2.0/24; without any they get what they ask for")
	set.StringVar(&f.output, "config-out", "", "file of the load balancer's configuration, which weir lb run on this machine follows")
	set.StringVar(&f.balancer, "balancer", "", "admin address of that weir lb run, which says what it has applied, such as unix:/run/weir/lb.sock or 127.0.0.1:9180 (default that of weir lb run)")
	set.StringVar(&f.token, "balancer-token-file", "", "file with the token that HOST:PORT of --balancer needs")
}

func (f *l4Flags) controller(log *slog.Logger) (c operator.Controller, err error) {
	o := l4.Options{}
	for _, text := range f.pools {
		pool, err := netip.ParsePrefix(text)
		if err != nil {
			return c, fmt.Errorf("--address-pool %q: write a prefix such as 192.0.2.0/24", text)
		}
		o.Pools = append(o.Pools, pool.Masked())
	}
	switch {
	case f.output != "":
		balancer, err := f.client()
		if err != nil {
			return c, err
		}
		o.Publisher = publish.NewFile(l4.Plane, f.output, balancer.LBStatus, log)
	case f.balancer != "":
		return c, errors.New("--balancer without --config-out: name the file that the load balancer follows")
	}
	return l4.Controller(o), nil
}

// client is for the load balancer that follows the file.
func (f *l4Flags) client() (*client.Client, error) {
	address := f.balancer
	if address == "" {
		address = cli.LBPart().Address()
	}
	token, err := cli.ReadToken(f.token)
	if err != nil {
		return nil, err
	}
	return client.New(address, token, cli.LBPart().Name), nil
}
