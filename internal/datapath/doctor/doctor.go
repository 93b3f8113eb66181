package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/datapath/nfqueue/rules"
	"github.com/weir-lb/weir/internal/finding"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// Config says what to examine.
type Config struct {
	// Plan and Snapshot are those of the configuration; nil: only the checks that need no configuration.
	Plan     *rules.Plan
	Snapshot *lb.Snapshot
	// Interfaces are the ones on which clients' packets arrive. None: all that are up.
	Interfaces []string
	First      uint16 // queues First to First+Count-1
	Count      int    // 0: none in particular
	// Arguments are the arguments of `weir lb rules` that make Plan; remedies contain them.
	Arguments string
	// Kernel selects the checks of the kernel data path instead of those of the queues.
	Kernel bool
}

// Examine runs every check that fits the configuration, and returns the findings in the order of the checks. The error names
// what could not be read.
func Examine(ctx context.Context, c Config) ([]finding.Finding, error) {
	e := &examiner{Config: c, ctx: ctx, proc: "/proc", flags: ethtoolFlags, force: forceBuffer}
	return e.run()
}

// examiner is one examination. Its functions are those of the kernel; tests replace them.
type examiner struct {
	Config
	finding.Collector
	ctx    context.Context
	proc   string
	flags  func(name string) (uint32, error)
	force  func(bytes int) error
	listed []rules.Listed // all iptables rules
	names  []string       // interfaces in use
	links  []netlink.Link
}

type check = finding.Check[*examiner]

func queueChecks() []check {
	return []check{
		{Name: "rules", Look: (*examiner).rules},
		{Name: "mark_routes", Look: (*examiner).markRoutes},
		{Name: "marks", Look: (*examiner).marks},
		{Name: "listener", Look: (*examiner).listener},
		{Name: "queue_drops", Look: (*examiner).drops},
		{Name: "receive_buffer", Look: (*examiner).buffer},
		{Name: "local_vip", Look: (*examiner).localVIP},
		{Name: "forwarding", Look: (*examiner).forwarding},
		{Name: "rp_filter", Look: (*examiner).reversePath},
		{Name: "fwmark_reflect", Look: (*examiner).reflect},
		{Name: "conntrack", Look: (*examiner).conntrack},
		{Name: "lro", Look: (*examiner).largeReceive},
		{Name: "bridge", Look: (*examiner).bridge},
	}
}

func kernelChecks() []check {
	return []check{
		{Name: "forwarding", Look: (*examiner).forwarding},
		{Name: "accept_local", Look: (*examiner).ownSource},
		{Name: "lro", Look: (*examiner).largeReceive},
		{Name: "veth", Look: (*examiner).veth},
	}
}

func (e *examiner) run() ([]finding.Finding, error) {
	if err := e.interfaces(); err != nil {
		return nil, err
	}
	checks := queueChecks()
	if e.Kernel {
		checks = kernelChecks()
	} else {
		for _, family := range []rules.Family{rules.IPv4, rules.IPv6} {
			listed, err := rules.List(e.ctx, family)
			if err != nil {
				return nil, err
			}
			e.listed = append(e.listed, listed...)
		}
	}
	return finding.Run(e.ctx, &e.Collector, e, checks)
}

// interfaces finds the interfaces in use.
func (e *examiner) interfaces() error {
	links, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("list interfaces: %w", err)
	}
	e.links = links
	for _, name := range e.Interfaces {
		if !slices.ContainsFunc(links, func(l netlink.Link) bool { return l.Attrs().Name == name }) && !strings.HasSuffix(name, "+") {
			return fmt.Errorf("there is no interface %s here", name)
		}
	}
	for _, l := range links {
		a := l.Attrs()
		wanted := len(e.Interfaces) == 0 && a.RawFlags&unix.IFF_UP != 0 && a.RawFlags&unix.IFF_LOOPBACK == 0
		for _, name := range e.Interfaces {
			prefix, wild := strings.CutSuffix(name, "+")
			wanted = wanted || a.Name == name || wild && strings.HasPrefix(a.Name, prefix)
		}
		if wanted {
			e.names = append(e.names, a.Name)
		}
	}
	return nil
}

// families returns the address families of packets to VIPs.
func (e *examiner) families() []rules.Family {
	if e.Plan != nil {
		return e.Plan.Families()
	}
	return []rules.Family{rules.IPv4, rules.IPv6}
}

// sysctl reads a number below /proc/sys/net; ok is false if this kernel does not have it.
func (e *examiner) sysctl(path string) (value int, ok bool, err error) {
	text, err := os.ReadFile(filepath.Join(e.proc, "sys/net", path))
	if os.IsNotExist(err) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	value, err = strconv.Atoi(strings.TrimSpace(string(text)))
	return value, err == nil, err
}

// set returns the command that sets a sysctl.
func set(path string, value int) string { return fmt.Sprintf("sysctl -w net/%s=%d", path, value) }

// applyCommand returns the command that makes the plan's rules.
func (e *examiner) applyCommand() string { return "weir lb rules " + e.Arguments + " --apply" }
