package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/programs"
)

const (
	failoverBackends = 7 // and one more, which is added
	failoverPort     = 5000
	failoverSNAT     = "10.0.0.2"
	failoverPrefix   = "10.0.0.0/30" // the VIP and what flows are translated to
	failoverKey      = "6f2b0c9e5a7d4813f0e2c4b6a8d91735"
)

// failoverTopology is netlab.Cluster with one client and no routes to the VIP: a router, two balancers and eight backends on one network.
func failoverTopology() *netlab.Topology {
	t := netlab.Cluster()
	t.Name = "bench-failover"
	gone := func(name string) bool { return name != "client1" && strings.HasPrefix(name, "client") }
	t.Namespaces = slices.DeleteFunc(t.Namespaces, func(n netlab.Namespace) bool { return gone(n.Name) })
	t.Links = slices.DeleteFunc(t.Links, func(l netlab.Link) bool { return gone(l.A.Namespace) || gone(l.B.Namespace) })
	for i := range t.Namespaces {
		if n := &t.Namespaces[i]; n.Name == "router" {
			n.Routes = nil
			for _, dev := range []string{"all", "eth0"} { // what backends send to a balancer enters and leaves by one interface
				n.Sysctls = append(n.Sysctls, netlab.Sysctl{Key: "net.ipv4.conf." + dev + ".send_redirects", Value: "0"})
			}
		}
	}
	return &t
}

func failoverVIP() netip.AddrPort { return netip.AddrPortFrom(vipAddress("ipv4"), failoverPort) }

func failoverBackend(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 2, 0, byte(101 + i)}) }

func balancerName(i int) string { return fmt.Sprintf("lb%d", i+1) }

// balancerAddress is that of a balancer on the network.
func balancerAddress(i int) string { return fmt.Sprintf("10.2.0.%d", 11+i) }

// serve starts a responder on each backend.
func (c *failover) serve() (all []*responder, err error) {
	for i, name := range backendNames(failoverBackends + 1) {
		at := netip.AddrPortFrom(failoverBackend(i), failoverPort)
		if !c.path.translates() {
			at = failoverVIP()
		}
		r, err := openResponder(c.Host(name), at, name)
		if err != nil {
			return all, err
		}
		all = append(all, r)
	}
	return all, nil
}

// balance starts BIRD on the router and both balancers, and waits until the router has their routes.
func (c *failover) balance(ctx context.Context) error {
	if err := c.bird(ctx, "router", c.routerFile()); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(c.Dir, "sync.key"), []byte(failoverKey+failoverKey+"\n"), 0o600); err != nil {
		return err
	}
	for i := range c.balancers {
		// A network card does not take frames for another one, as a veth does: those for the lost balancer, which the bridge floods.
		if _, err := c.Host("segment").Exec(ctx, "bridge", "link", "set", "dev", "to-"+balancerName(i), "flood", "off"); err != nil {
			return err
		}
		if err := c.startBalancer(ctx, i); err != nil {
			return err
		}
	}
	if err := until(ctx, programs.ReadyTimeout, func() error { return c.routed(ctx) }); err != nil || !c.path.sync {
		return err
	}
	return until(ctx, programs.ReadyTimeout, func() error { return c.linked(ctx) })
}

func (c *failover) startBalancer(ctx context.Context, i int) (err error) {
	if c.path.mode == "" {
		if err := c.translate(ctx, balancerName(i), failoverBackends); err != nil {
			return err
		}
		return c.bird(ctx, balancerName(i), c.peerFile(i))
	}
	name := fmt.Sprintf("failover-%s-%s", c.path.name, balancerName(i))
	c.files[i] = filepath.Join(c.Dir, name+".yaml")
	c.balancers[i], err = c.Kernel(ctx, balancerName(i), name, c.balancerFile(i, failoverBackends), "eth0", "--hook", "tcx")
	return err
}

// balancerFile is the configuration of a balancer of Weir.
func (c *failover) balancerFile(i, backends int) string {
	var b strings.Builder
	prepends := 0
	if i == 1 && c.path.translates() { // one balancer has all flows
		prepends = 2
	}
	fmt.Fprintf(&b, `announce:
  aggregates: [%s]
  bgp:
    as: 64512
    router_id: %s
    prepends: %d
    neighbours: [{address: 10.2.0.1, as: 64513, bfd: {interval: %v, multiplier: 3}}]
`, failoverPrefix, balancerAddress(i), prepends, c.config.BFD)
	if c.path.sync {
		fmt.Fprintf(&b, "sync: {listen: \"%s:8477\", peers: [\"%s:8477\"], key_file: %s}\n", balancerAddress(i), balancerAddress(1-i), filepath.Join(c.Dir, "sync.key"))
	}
	var list, plain []string
	for j, name := range backendNames(backends) {
		text := fmt.Sprintf("name: %s, address: %s", name, failoverBackend(j))
		if plain = append(plain, text); c.path.cid {
			text += fmt.Sprintf(", nodes: [%d]", j+1)
		}
		list = append(list, text)
	}
	vip := failoverVIP()
	vips := []string{vipOf(vip.Addr(), "udp", failoverPort)}
	vips = append(vips, vipOf(vip.Addr(), "tcp", failoverPort))
	if c.path.cid { // connection ids are of UDP alone
		b.WriteString(serviceConfig(c.path.mode, 4*c.config.Flows+1024, c.path.more, vips[:1], list...))
		fmt.Fprintf(&b, "- name: tcp\n  mode: %s\n  vips: [{%s}]\n  backends:\n  - {%s}\n", c.path.mode, vips[1], strings.Join(plain, "}\n  - {"))
		return b.String()
	}
	b.WriteString(serviceConfig(c.path.mode, 4*c.config.Flows+1024, c.path.more, vips, list...))
	return b.String()
}

// bird runs BIRD in a namespace with a configuration.
func (c *failover) bird(ctx context.Context, host, text string) error {
	file := filepath.Join(c.Dir, "bird-"+host)
	if err := os.WriteFile(file+".conf", []byte(text), 0o600); err != nil {
		return err
	}
	if _, err := c.Output(ctx, host, exec.Command("bird", "-p", "-c", file+".conf")); err != nil { //nolint:gosec // a name of ours
		return err
	}
	return c.Running.Start(c.Host(host), exec.Command("bird", "-f", "-c", file+".conf", "-s", file+".ctl", "-P", file+".pid")) //nolint:gosec // a name of ours
}

// routerFile is BIRD's configuration on the router: equal paths are merged, BFD finds out what is dead.
func (c *failover) routerFile() string {
	return fmt.Sprintf(`router id 10.2.0.1;
protocol device {}
protocol bfd { interface "eth0" { interval %d us; multiplier 3; }; }
protocol kernel { merge paths yes; ipv4 { export all; }; }
template bgp balancer {
  local 10.2.0.1 as 64513; connect retry time 1; error wait time 1, 2; bfd on; passive on;
  ipv4 { import all; export none; };
}
protocol bgp lb1 from balancer { neighbor %s as 64512; }
protocol bgp lb2 from balancer { neighbor %s as 64512; }
`, c.config.BFD.Microseconds(), balancerAddress(0), balancerAddress(1))
}

// peerFile is BIRD's on a balancer that is not Weir: it announces the prefix, the second balancer a longer path.
func (c *failover) peerFile(i int) string {
	prepend := ""
	if i == 1 {
		prepend = "bgp_path.prepend(64512); bgp_path.prepend(64512); "
	}
	return fmt.Sprintf(`router id %[1]s;
protocol device {}
protocol bfd { interface "eth0" { interval %[2]d us; multiplier 3; }; }
protocol static { ipv4; route %[3]s blackhole; }
protocol bgp upstream {
  local %[1]s as 64512; neighbor 10.2.0.1 as 64513; connect retry time 1; bfd on;
  ipv4 { import none; export filter { %[4]saccept; }; };
}
`, balancerAddress(i), c.config.BFD.Microseconds(), failoverPrefix, prepend)
}

// translate has the kernel of a balancer translate new flows to a backend that it draws, and to an address of the balancers.
func (c *failover) translate(ctx context.Context, host string, backends int) error {
	var rules strings.Builder
	rules.WriteString("*nat\n")
	for _, protocol := range []string{"tcp", "udp"} {
		for j := range backends {
			draw := ""
			if left := backends - j; left > 1 {
				draw = fmt.Sprintf("-m statistic --mode random --probability %.9f ", 1/float64(left))
			}
			fmt.Fprintf(&rules, "-A PREROUTING -d %s -p %s --dport %d %s-j DNAT --to-destination %s:%d\n",
				failoverVIP().Addr(), protocol, failoverPort, draw, failoverBackend(j), failoverPort)
		}
		fmt.Fprintf(&rules, "-A POSTROUTING -d 10.2.0.0/24 -p %s --dport %d -j SNAT --to-source %s\n", protocol, failoverPort, failoverSNAT)
	}
	rules.WriteString("COMMIT\n")
	cmd := exec.Command("iptables-restore", "-w")
	cmd.Stdin = strings.NewReader(rules.String())
	_, err := c.Output(ctx, host, cmd)
	return err
}

// routed says why the router does not have the routes that it is to have; nil: it has.
func (c *failover) routed(ctx context.Context) error {
	text, err := c.Host("router").Exec(ctx, "ip", "-j", "route", "show", failoverPrefix)
	if err != nil {
		return err
	}
	var routes []struct {
		Gateway  string `json:"gateway"`
		Nexthops []struct {
			Gateway string `json:"gateway"`
		} `json:"nexthops"`
	}
	if err := json.Unmarshal([]byte(text), &routes); err != nil {
		return fmt.Errorf("routes of the router: %w: %s", err, text)
	}
	switch {
	case len(routes) == 1 && c.path.translates() && routes[0].Gateway == balancerAddress(0) && c.bothAnnounce(ctx):
		return nil
	case len(routes) == 1 && !c.path.translates() && len(routes[0].Nexthops) == 2:
		return nil
	}
	return fmt.Errorf("the router has no route to each balancer: %s", strings.TrimSpace(text))
}

// bothAnnounce reports whether the router has a path by each balancer, of which it uses one.
func (c *failover) bothAnnounce(ctx context.Context) bool {
	text, err := c.Host("router").Exec(ctx, "birdc", "-s", filepath.Join(c.Dir, "bird-router.ctl"), "show", "route", failoverPrefix)
	return err == nil && strings.Contains(text, balancerAddress(0)) && strings.Contains(text, balancerAddress(1))
}

// status is that of a balancer.
func (c *failover) status(ctx context.Context, i int) (*v1.LBStatus, error) {
	status := new(v1.LBStatus)
	return status, c.balancers[i].Get(ctx, "/status", status)
}

// linked says why the balancers do not share state; nil: they do.
func (c *failover) linked(ctx context.Context) error {
	for i := range c.balancers {
		s, err := c.status(ctx, i)
		if err != nil {
			return err
		}
		if s.Sync == nil || !s.Sync.Complete || !s.Sync.Peers[0].Out.Complete || !s.Sync.Peers[0].In.Complete {
			return fmt.Errorf("%s does not share flows with its peer", balancerName(i))
		}
	}
	return nil
}

// synchronised says which state of flows the second balancer does not have; nil: it has all.
func (c *failover) synchronised(ctx context.Context) error {
	n, err := c.tracked(ctx, 1)
	if err == nil && n < c.config.Flows {
		err = fmt.Errorf("the second balancer has the state of %d of %d flows", n, c.config.Flows)
	}
	return err
}

// tracked counts the flows in the table of a balancer.
func (c *failover) tracked(ctx context.Context, i int) (n int, err error) {
	s, err := c.status(ctx, i)
	if err != nil || s.Kernel == nil {
		return 0, err
	}
	for _, backends := range s.Kernel.Flows {
		for _, flows := range backends {
			n += flows
		}
	}
	return n, nil
}

// backends changes how many backends there are, at both balancers.
func (c *failover) backends(ctx context.Context, n int) error {
	for i := range 2 {
		if c.path.mode == "" {
			if err := c.translate(ctx, balancerName(i), n); err != nil {
				return err
			}
			continue
		}
		next := c.files[i] + ".next"
		if err := errors.Join(os.WriteFile(next, []byte(c.balancerFile(i, n)), 0o600), os.Rename(next, c.files[i]), syscall.Kill(c.balancers[i].PID(), syscall.SIGHUP)); err != nil {
			return err
		}
		err := until(ctx, programs.ReadyTimeout, func() error {
			s, err := c.status(ctx, i)
			if err == nil && len(s.Services[0].Backends) != n {
				err = fmt.Errorf("%s has %d backends instead of %d", balancerName(i), len(s.Services[0].Backends), n)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// off takes the first balancer from the network at once, and ends what runs on it.
func (c *failover) off() error {
	if err := c.Host("segment").SetUp("to-"+balancerName(0), false); err != nil {
		return err
	}
	if c.balancers[0] != nil {
		c.balancers[0].Kill()
	}
	return nil
}

// failoverWait is how long an answer may take after the last request.
const failoverWait = 3 * time.Second
