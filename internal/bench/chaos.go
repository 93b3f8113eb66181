package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/programs"
)

// ChaosConfig says what happens to a cluster of CoAP nodes under which load.
type ChaosConfig struct {
	Run
	Duration time.Duration // of the script
	Seed     uint64        // of the script and of the clients; 0 draws one
	Nodes    int
	Clients  int
	Interval time.Duration // pause of a client between response and next request
	Every    time.Duration // from an event to the next one, on average
	Events   []string      // names of ChaosEvents; empty: all that end no session
	Etcd     string        // program of etcd, with which the nodes replicate their sessions; empty: they do not
	clocks   bool          // time namespaces can be used
	Follow   bool          // the NAT steers by connection id and follows the cluster: else nodes forward to each other
}

// Validate says what cannot be meant.
func (c *ChaosConfig) Validate() error {
	switch {
	case c.Duration < 5*time.Second || c.Duration > 24*time.Hour:
		return fmt.Errorf("--duration %v: give 5s to 24h", c.Duration)
	case c.Nodes < 2 || c.Nodes > 9:
		return fmt.Errorf("--nodes %d: give 2 to 9", c.Nodes)
	case c.Clients < 1 || c.Clients > 20_000:
		return fmt.Errorf("--clients %d: give 1 to 20000", c.Clients)
	case c.Interval < 0:
		return fmt.Errorf("--interval %v: it must not be negative", c.Interval)
	case c.Every < 100*time.Millisecond || c.Every > time.Hour:
		return fmt.Errorf("--every %v: give 100ms to 1h", c.Every)
	}
	return knownNames("event", c.Events, namesOf(chaosEvents()))
}

// events are those of the configuration.
func (c *ChaosConfig) events() []chaosEvent {
	return slices.DeleteFunc(chaosEvents(), func(e chaosEvent) bool {
		return !wanted(c.Events, e.name) || len(c.Events) == 0 && (e.unasked && c.Etcd == "" || e.name == "clock" && !c.clocks)
	})
}

// alone is how long no node has an event after one of a node; 0: events overlap.
func (c *ChaosConfig) alone() time.Duration {
	if c.Etcd == "" {
		return 0
	}
	return chaosAlone
}

// moveClocks reports whether programs can be run in a time namespace (time_namespaces(7)) here: it needs CAP_SYS_TIME and unshare of util-linux.
func moveClocks(ctx context.Context) bool {
	return exec.CommandContext(ctx, "unshare", "--time", "--monotonic", "1", "true").Run() == nil
}

const (
	chaosBalancer = "balancer"
	chaosStore    = "10.85.0.250" // of etcd, in the switch
	chaosSwitch   = "switch"      // between the management addresses of the nodes
	chaosNodePort = 15784
	chaosLinkPort = 15884
	chaosService  = 5784
)

// chaos is one run.
type chaos struct {
	*programs.Stage
	ctx    context.Context
	config ChaosConfig
	nodes  []*chaosNode
	nat    *programs.Daemon
	audit  *nonces
	links  *nonces // of what the nodes send each other; their own, since each belongs to one capture
	taken  []*capture

	steps   []restartWindow // what was done, and what the clients saw until the next one
	names   []string        // of them
	refused []string        // steps that failed, and why
}

// Chaos lets a script of events happen to a cluster under load, and checks what the clients and the network saw.
func Chaos(ctx context.Context, config ChaosConfig) (results []*measure.Result, err error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if config.Seed == 0 {
		config.Seed = uint64(rand.Uint32()) //nolint:gosec // short enough to be typed again
	}
	config.clocks = moveClocks(ctx)
	c := &chaos{ctx: ctx, config: config, audit: newNonces(), links: newNonces()}
	if c.Stage, err = programs.OpenStage(config.Binary, chaosTopology(config.Nodes)); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	result, err := c.measure()
	if err != nil {
		return nil, err
	}
	return []*measure.Result{result}, nil
}

// chaosTopology is the clients, the balancer and the nodes, each a host; nodes send each other on links of their own.
func chaosTopology(nodes int) *netlab.Topology {
	t := &netlab.Topology{
		Name:       "benchchaos",
		Namespaces: []netlab.Namespace{{Name: "clients"}, {Name: chaosBalancer}, {Name: chaosSwitch, Bridges: []netlab.Bridge{{Name: "br0", Addresses: netlab.Prefixes(chaosStore + "/24")}}}},
		Links:      []netlab.Link{netlab.Cable("clients eth0 10.84.0.2/24", chaosBalancer+" eth0 10.84.0.1/24")},
	}
	for i := 1; i <= nodes; i++ {
		name := fmt.Sprintf("node%d", i)
		t.Namespaces = append(t.Namespaces, netlab.Namespace{Name: name})
		link := netlab.Cable(fmt.Sprintf("%s mgmt0 10.85.0.%d/24", name, i), chaosSwitch+" "+name)
		link.B.Bridge = "br0"
		t.Links = append(t.Links, link,
			netlab.Cable(fmt.Sprintf("%s eth0 10.84.%d.2/24", name, i), fmt.Sprintf("%s %s 10.84.%d.1/24", chaosBalancer, name, i)))
	}
	return t
}

// chaosAddresses are public and management address of each node.
func chaosAddresses(nodes int) (all []netip.AddrPort) {
	for i := 1; i <= nodes; i++ {
		all = append(all, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 84, byte(i), 2}), chaosNodePort),
			netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 85, 0, byte(i)}), chaosLinkPort))
	}
	return all
}

// start starts the captures, the nodes and the balancer.
func (c *chaos) start() (err error) {
	if err := c.startCaptures(); err != nil {
		return err
	}
	if err := c.startCluster(func(n *chaosNode) []string { return []string{"--state", n.state, "--executions", n.done} }); err != nil {
		return err
	}
	var public, admins []string
	for _, n := range c.nodes {
		public, admins = append(public, n.public), append(admins, n.daemon.Admin())
	}
	args := []string{"nat", fmt.Sprintf("10.84.0.1:%d", chaosService), "--quiet", "--workers", "1"}
	if c.config.Follow {
		args = append(args, "--cid-length", strconv.Itoa(chaosServerCID), "--cluster", strings.Join(admins, ","))
	}
	c.nat, err = c.Daemon(c.ctx, chaosBalancer, "nat", append(append(args, "--"), public...)...)
	return err
}

// startCluster starts the nodes with what more says, and waits until they know each other.
func (c *chaos) startCluster(more func(*chaosNode) []string) error {
	addresses := chaosAddresses(c.config.Nodes)
	replicate, err := c.startEtcd()
	if err != nil {
		return err
	}
	for i := range c.config.Nodes {
		n := newChaosNode(i, c.Dir)
		n.public = addresses[2*i].String()
		n.args = slices.Concat([]string{"coap", "server", "--workers", "1"}, securedNode(addresses, i), replicate, more(n))
		c.nodes = append(c.nodes, n)
		if err := c.startNode(c.ctx, n); err != nil {
			return err
		}
	}
	for _, n := range c.nodes {
		if err := joined(c.ctx, n.daemon, n.name, c.config.Nodes-1); err != nil {
			return err
		}
	}
	return nil
}

// startEtcd starts the store in which nodes agree who has which sessions, if they replicate them, and returns the nodes' arguments.
func (c *chaos) startEtcd() (args []string, err error) {
	if c.config.Etcd == "" {
		return nil, nil
	}
	clients, peers := "http://"+chaosStore+":2379", "http://127.0.0.1:2380"
	cmd := exec.Command(c.config.Etcd, "--data-dir", filepath.Join(c.Dir, "etcd"), "--listen-client-urls", clients, "--advertise-client-urls", clients, //nolint:gosec // as the user says
		"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "default="+peers, "--unsafe-no-fsync", "--log-level", "error")
	if err := c.Running.Start(c.Host(chaosSwitch), cmd); err != nil {
		return nil, err
	}
	err = until(c.ctx, programs.ReadyTimeout, func() error {
		return c.Host(chaosSwitch).Do(func() error {
			conn, err := net.DialTimeout("tcp", chaosStore+":2379", time.Second)
			if err != nil {
				return fmt.Errorf("etcd does not answer: %w", err)
			}
			return conn.Close()
		})
	})
	return []string{"--dtls-cluster-replicate", clients}, err
}

// startCaptures audits what the nodes and the clients send: on the balancer's side of their links, and in the switch between the nodes.
func (c *chaos) startCaptures() error {
	for _, at := range []struct {
		host string
		take func(from, to netip.AddrPort, payload []byte)
	}{
		{chaosBalancer, func(from, to netip.AddrPort, payload []byte) {
			switch {
			case to.Port() == chaosService, to.Port() == chaosNodePort:
				c.audit.datagram(payload, true)
			case from.Port() == chaosNodePort:
				c.audit.datagram(payload, false)
			}
		}},
		{chaosSwitch, func(_, to netip.AddrPort, payload []byte) {
			if to.Port() == chaosLinkPort {
				c.links.frames(payload)
			}
		}},
	} {
		taken, err := startCapture(c.Host(at.host), at.take)
		if err != nil {
			return err
		}
		c.taken = append(c.taken, taken)
	}
	return nil
}

// measure runs the load and the script.
func (c *chaos) measure() (*measure.Result, error) {
	if err := c.start(); err != nil {
		return nil, err
	}
	load, err := startCoapLoad(c.Stage, "clients", fmt.Sprintf("coaps://10.84.0.1:%d/executions", chaosService), "--clients", strconv.Itoa(c.config.Clients),
		"--interval", c.config.Interval.String(), "--duration", "25h", "--progress", "json", "--workers", "1", "--cid-length", strconv.Itoa(chaosClientCID), "--serials",
		"--seed", strconv.FormatUint(c.config.Seed, 10))
	if err != nil {
		return nil, err
	}
	defer load.stop()
	if err := load.started(c.ctx); err != nil {
		return nil, err
	}
	started := time.Now()
	if err := c.follow(started, load); err != nil {
		return nil, err
	}
	if err := c.quiet(load); err != nil {
		return nil, err
	}
	total, err := load.end(c.ctx)
	if err != nil {
		return nil, err
	}
	var dropped uint64
	for _, taken := range c.taken {
		lost, err := taken.stop()
		if err != nil {
			return nil, err
		}
		dropped += lost
	}
	executed, err := readExecutions(c.nodes)
	if err != nil {
		return nil, err
	}
	return c.result(started, load.taken(), &total, executed, dropped), nil
}

// follow does what the script says, each step at its time or as soon as the one before is done.
func (c *chaos) follow(started time.Time, load *coapLoad) error {
	script := chaosScript(c.config.Seed, c.config.Nodes, c.config.Duration, c.config.Every, c.config.alone(), c.config.events())
	for i, step := range script {
		if err := programs.Sleep(c.ctx, time.Until(started.Add(step.at))); err != nil {
			return err
		}
		c.config.progress(float64(step.at)/float64(c.config.Duration), "%d of %d: %s", i+1, len(script), step)
		c.steps, c.names = append(c.steps, restartWindow{at: time.Now(), load: loadAverage()}), append(c.names, step.String())
		do := step.event.begin
		if step.ends {
			do = step.event.end
		}
		var node *chaosNode
		if step.node >= 0 {
			node = c.nodes[step.node]
		}
		if err := do(c, node); err != nil {
			if c.ctx.Err() != nil {
				return c.ctx.Err()
			}
			c.refused = append(c.refused, fmt.Sprintf("step %d, %s: %v", i+1, step, err))
		}
		if err := load.failure(); err != nil {
			return err
		}
	}
	return programs.Sleep(c.ctx, time.Until(started.Add(c.config.Duration)))
}

// chaosQuiet bounds how long answers are awaited at the end: a request is lost after 93 s at the latest (RFC 7252 section 4.8.2).
const chaosQuiet = 100 * time.Second

// quiet waits until every client has had an answer, or no hope for one, since the end of the script.
func (c *chaos) quiet(load *coapLoad) error {
	if err := c.calm(); err != nil {
		return err
	}
	c.config.progress(1, "waiting for the last answers")
	end := time.Now()
	err := until(c.ctx, chaosQuiet, func() error {
		if !load.settled(end) {
			return errors.New("answers are outstanding")
		}
		return load.failure()
	})
	if c.ctx.Err() != nil {
		return c.ctx.Err()
	}
	if failed := load.failure(); failed != nil {
		return failed
	}
	if err != nil {
		c.refused = append(c.refused, fmt.Sprintf("at the end: %v after %v", err, chaosQuiet))
	}
	return nil
}
