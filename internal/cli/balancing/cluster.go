package balancing

import (
	"context"
	"fmt"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/client"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// maxNodeAnswer is how many bytes of the status of a cluster node are read.
const maxNodeAnswer = 4 << 20

// QueryNode requests the status of a node of a CoAP cluster, for control.Options. The token is read again each time.
func QueryNode(ctx context.Context, cluster *lb.Cluster, admin string) (*v1.CoAPStatus, error) {
	token, err := cli.AdminToken(cluster.TokenFile)
	if err != nil {
		return nil, fmt.Errorf("token_file: %w", err)
	}
	return client.New(admin, token, cli.CoapPart().Name).Limit(maxNodeAnswer).CoAPStatus(ctx)
}

// WatchNode follows which node of a CoAP cluster has which sessions, as a node reports it, for control.Options.
func WatchNode(ctx context.Context, cluster *lb.Cluster, admin string, each func(*v1.CoAPOwners) error) error {
	token, err := cli.AdminToken(cluster.TokenFile)
	if err != nil {
		return fmt.Errorf("token_file: %w", err)
	}
	return client.New(admin, token, cli.CoapPart().Name).CoAPOwners(ctx, each)
}
