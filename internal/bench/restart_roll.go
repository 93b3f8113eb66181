package bench

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/programs"
)

const (
	rollNodes = 3
	rollDrain = "20s" // --drain-timeout of the nodes

	// After a shard has moved and the balancer steers accordingly, datagrams that were under way may still be forwarded for rollGrace; then
	// nothing may be forwarded for rollQuiet.
	rollGrace = 200 * time.Millisecond
	rollQuiet = time.Second
)

// roll is a cluster of nodes behind the kernel data path of weir lb, which follows their owners. The nodes are restarted one after the
// other.
type roll struct {
	stage    *programs.Stage
	mode     string   // of the balancer's service
	layout   coapPath // addresses and links
	nodes    [rollNodes]*programs.Daemon
	balancer *programs.Daemon
	next     int // node to be restarted

	// Of the newest event:
	moving uint64        // datagrams forwarded between nodes while shards moved
	after  uint64        // and afterwards
	quiet  time.Duration // how long that was observed
}

// rollLayout is the network: clients, a balancer and the nodes, each on a link of its own.
func rollLayout(mode string) coapPath {
	return coapPath{name: "roll-" + mode, nodes: rollNodes, kernel: true}
}

func rollTopology(mode string) *netlab.Topology { return rollLayout(mode).movedTopology() }

// openRoll starts the nodes and the balancer, and waits until it knows each node's id.
func openRoll(ctx context.Context, stage *programs.Stage, mode string) (*roll, error) {
	c := &roll{stage: stage, mode: mode, layout: rollLayout(mode)}
	for i := range c.nodes {
		if err := c.start(ctx, i); err != nil {
			return nil, err
		}
	}
	var err error
	if c.balancer, err = stage.Kernel(ctx, "balancer", c.layout.name, c.config(), c.layout.kernelInterfaces()); err != nil {
		return nil, err
	}
	return c, until(ctx, programs.ReadyTimeout, func() error {
		for i := range c.nodes {
			if err := c.isHome(ctx, i); err != nil {
				return err
			}
		}
		return nil
	})
}

// addresses are public and management of each node. With DSR each node has the VIP.
func (c *roll) addresses() (all []netip.AddrPort) {
	layout := c.layout
	layout.kernel = c.mode != "nat"
	return layout.movedAddresses()[:2*rollNodes]
}

func (c *roll) vip() netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(movedVIP), movedPort)
}

func rollName(i int) string { return fmt.Sprintf("node%d", i+1) }

// config follows the cluster; no node id is written in it.
func (c *roll) config() string {
	var backends []string
	for i := range c.nodes {
		backends = append(backends, fmt.Sprintf("name: %s, address: %q, admin: %q", rollName(i), nodeAddress(i+1), "unix:"+filepath.Join(c.stage.Dir, rollName(i)+".sock")))
	}
	more := "  cid: {protocols: [dtls12], layouts: [{length: 6, owner: {offset: 0, bits: 8}}]}\n  cluster: {every: 100ms}\n"
	return serviceConfig(c.mode, 0, more, []string{vipOf(c.vip().Addr(), "udp", movedPort)}, backends...)
}

// start starts a node, or the next process of one.
func (c *roll) start(ctx context.Context, i int) (err error) {
	args := append([]string{"coap", "server", "--no-supervisor", "--workers", "1", "--drain-timeout", rollDrain}, securedNode(c.addresses(), i)...)
	c.nodes[i], err = c.stage.Daemon(ctx, rollName(i), rollName(i), args...)
	return err
}

// restartNext drains a node, ends it, starts it again, and waits until its sessions are back. In between, and after it, nothing may be forwarded.
func (c *roll) restartNext(ctx context.Context) error {
	i := c.next
	c.next = (c.next + 1) % rollNodes
	c.moving, c.after, c.quiet = 0, 0, 0
	counted, err := c.forwarded(ctx)
	if err != nil {
		return err
	}
	if err := c.drain(ctx, i); err != nil {
		return err
	}
	if err := until(ctx, programs.ReadyTimeout, func() error { return c.isAway(ctx, i) }); err != nil {
		return err
	}
	if err := c.observe(ctx, &counted); err != nil {
		return err
	}
	node := c.nodes[i]
	if err := syscall.Kill(node.PID(), syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-node.Ended():
	case <-ctx.Done():
		return ctx.Err()
	}
	counted[i] = 0 // of the next process
	if err := c.start(ctx, i); err != nil {
		return err
	}
	if err := until(ctx, programs.ReadyTimeout, func() error { return c.isHome(ctx, i) }); err != nil {
		return err
	}
	return c.observe(ctx, &counted)
}

// drain has a node move its sessions, as soon as others take them, and waits until none is left.
func (c *roll) drain(ctx context.Context, i int) error {
	if err := until(ctx, programs.ReadyTimeout, func() error {
		_, err := c.nodes[i].Do(ctx, http.MethodPost, "/drain", "")
		return err
	}); err != nil {
		return err
	}
	return until(ctx, programs.ReadyTimeout, func() error {
		l, err := c.status(ctx, i)
		if err == nil && (l.Moves == nil || !l.Moves.Drained || l.Moves.Transit > 0) {
			err = fmt.Errorf("%s is not drained", rollName(i))
		}
		return err
	})
}

// status is a node's only listener.
func (c *roll) status(ctx context.Context, i int) (*v1.CoAPListener, error) {
	return clusterListener(ctx, c.nodes[i], rollName(i))
}

// backends is what the balancer applies.
func (c *roll) backends(ctx context.Context) (map[string]v1.BackendStatus, error) {
	var status v1.LBStatus
	if err := c.balancer.Get(ctx, "/status", &status); err != nil {
		return nil, err
	}
	all := map[string]v1.BackendStatus{}
	for _, s := range status.Services {
		for _, b := range s.Backends {
			all[b.Name] = b
		}
	}
	return all, nil
}

// isAway says why the balancer does not send the node's shard to other nodes, and no new flow to the node; nil: it does.
func (c *roll) isAway(ctx context.Context, i int) error {
	all, err := c.backends(ctx)
	if err != nil {
		return err
	}
	own, elsewhere := all[rollName(i)], 0
	for name, b := range all {
		if name != rollName(i) && slices.Contains(b.Nodes, uint32(i+1)) {
			elsewhere++
		}
	}
	if len(own.Nodes) > 0 || elsewhere != 1 || own.State == "up" {
		return fmt.Errorf("the balancer sends %s the records of %d and takes it for %s", rollName(i), own.Nodes, own.State)
	}
	return nil
}

// isHome says why the balancer does not send the node its own shard, and new flows; nil: it does.
func (c *roll) isHome(ctx context.Context, i int) error {
	all, err := c.backends(ctx)
	if err != nil {
		return err
	}
	if b := all[rollName(i)]; !slices.Equal(b.Nodes, []uint32{uint32(i + 1)}) || b.State != "up" {
		return fmt.Errorf("the balancer sends %s the records of %d and takes it for %s", rollName(i), b.Nodes, b.State)
	}
	return nil
}

// forwarded is how many datagrams each node has sent to another one.
func (c *roll) forwarded(ctx context.Context) (all [rollNodes]uint64, err error) {
	for i := range c.nodes {
		l, err := c.status(ctx, i)
		if err != nil {
			return all, err
		}
		all[i] = l.Cluster.Forwarded + l.Cluster.Relayed
	}
	return all, nil
}

// observe counts what is forwarded while no shard moves, apart from what was forwarded since before.
func (c *roll) observe(ctx context.Context, before *[rollNodes]uint64) error {
	began := time.Now()
	if err := programs.Sleep(ctx, rollGrace); err != nil {
		return err
	}
	from, err := c.forwarded(ctx)
	if err != nil {
		return err
	}
	if err := programs.Sleep(ctx, rollQuiet); err != nil {
		return err
	}
	to, err := c.forwarded(ctx)
	for i := range to {
		c.moving += from[i] - before[i]
		c.after += to[i] - from[i]
	}
	*before = to
	c.quiet += time.Since(began)
	return err
}

// rollOne restarts one node of the cluster.
func (r *restart) rollOne(ctx context.Context) error { return r.roll.restartNext(ctx) }
