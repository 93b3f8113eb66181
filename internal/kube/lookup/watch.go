package lookup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"

	"github.com/gorilla/websocket"

	"github.com/weir-lb/weir/internal/kube/discovery"
)

// Dial connects to the config discovery service for a watch, at a path of it. Each call looks for the Pods again, because they may have been
// replaced. A [discovery.Watcher] takes it.
func (c *Config) Dial(ctx context.Context, path string, query url.Values) (conn *websocket.Conn, err error) {
	return conn, c.each(ctx, func(o discovery.Origin) (err error) {
		conn, err = o.Dial(ctx, path, query)
		return err
	})
}

// Get reads a configuration once, as [discovery.Get] does.
func (c *Config) Get(ctx context.Context, id discovery.ID, node string) (text []byte, err error) {
	return text, c.each(ctx, func(o discovery.Origin) (err error) {
		text, err = discovery.Get(ctx, o, id, node)
		return err
	})
}

// each calls do with the addresses of the service's Pods until one call succeeds.
func (c *Config) each(ctx context.Context, do func(discovery.Origin) error) error {
	client, err := c.Client()
	if err != nil {
		return err
	}
	candidates, err := c.candidates(ctx, client)
	if err != nil {
		return err
	}
	var failures []error
	for _, pod := range candidates {
		err := errors.New("it has no address yet")
		if ip := pod.Status.PodIP; ip != "" {
			var origin discovery.Origin
			if origin, err = discovery.ParseOrigin(net.JoinHostPort(ip, strconv.Itoa(cmp.Or(c.Port, discovery.DefaultPort)))); err == nil {
				err = do(origin)
			}
		}
		if err == nil {
			return nil
		}
		failures = append(failures, fmt.Errorf("Pod %s/%s: %w", pod.Namespace, pod.Name, err)) //nolint:staticcheck // a name of Kubernetes
	}
	return errors.Join(failures...)
}
