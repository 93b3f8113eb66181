package cluster

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/weir-lb/weir/internal/coap/cluster/membership"
)

const (
	resolveTime  = 10 * time.Second // all names of a group may take to resolve
	resolveEvery = 10 * time.Second
)

// names are the addresses of the configuration at which nodes are searched for, HOST:PORT. A name stands for all its addresses. Not safe
// for concurrent use.
type names struct {
	texts  []string
	lookup func(ctx context.Context, host string) ([]netip.Addr, error)
	last   map[string][]netip.Addr // of a name, when it resolved last
	failed map[string]bool         // names that did not resolve, which was logged
}

func newNames(texts []string) names {
	return names{
		texts: texts, last: map[string][]netip.Addr{}, failed: map[string]bool{},
		lookup: func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		},
	}
}

// fixed reports whether there are no names whose addresses could change.
func (n *names) fixed() bool {
	return !slices.ContainsFunc(n.texts, func(text string) bool {
		_, err := netip.ParseAddrPort(text)
		return err != nil
	})
}

// resolve returns the addresses of all names, without that of the own node. A name that does not resolve has the addresses that it had
// last: its node may not have started yet, or the server of names is silent.
func (n *names) resolve(ctx context.Context, c *Cluster) (all []netip.AddrPort) {
	for _, text := range n.texts {
		host, port, _ := net.SplitHostPort(text) // Validate has checked it
		number, _ := strconv.ParseUint(port, 10, 16)
		addresses, err := n.lookup(ctx, host)
		switch {
		case ctx.Err() != nil && err != nil:
		case err != nil:
			if !n.failed[text] {
				c.log.Warn("a name of the cluster's group does not resolve; it is tried again", "name", host, "cause", err, "every", resolveEvery)
			}
			n.failed[text] = true
		default:
			n.last[text], n.failed[text] = addresses, false
		}
		for _, address := range n.last[text] {
			a := netip.AddrPortFrom(zoneIndex(address.Unmap()), uint16(number))
			if host == "localhost" && !a.Addr().Is4() || slices.Contains(all, a) || c.isOwn(a) {
				continue
			}
			all = append(all, a)
		}
	}
	return all[:min(len(all), membership.MaxGroup)]
}

// Run resolves the names of the group again and again, and serves the store of copied sessions, until ctx ends.
func (c *Cluster) Run(ctx context.Context) error {
	if c.replicas != nil {
		var group sync.WaitGroup
		defer group.Wait()
		group.Go(func() { c.replicas.run(ctx) })
	}
	if c.names.fixed() {
		<-ctx.Done()
		return nil
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(resolveEvery):
		}
		limited, cancel := context.WithTimeout(ctx, resolveTime)
		group := c.names.resolve(limited, c)
		cancel()
		c.mu.Lock()
		c.table.SetGroup(group)
		c.publishLocked()
		c.mu.Unlock()
	}
}
