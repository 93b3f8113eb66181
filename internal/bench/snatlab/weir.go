package snatlab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/weir-lb/weir/internal/snat"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/programs"
	"github.com/weir-lb/weir/internal/testbed/scratch"
)

// weirNAT is a running `weir lb run` that translates in one namespace.
type weirNAT struct {
	binary, pins string
	dir          *scratch.Dir
	host         *netlab.Host
	group        *programs.Group
	daemon       *programs.Daemon
}

// pinFolder holds the pins; the process id in a name tells whose they are.
const pinFolder = "/sys/fs/bpf/weir"

// startWeir returns what must be stopped, also with an error.
func startWeir(ctx context.Context, binary string, l *layout, lab *netlab.Lab) (*weirNAT, error) {
	temporary, err := scratch.New()
	if err != nil {
		return nil, err
	}
	dir := temporary.Path
	w := &weirNAT{
		binary: binary, dir: temporary, host: lab.Namespace(l.weirAt()), group: programs.NewGroup(),
		pins: filepath.Join(pinFolder, fmt.Sprintf("snatlab-%d-%s", os.Getpid(), filepath.Base(dir))),
	}
	file := filepath.Join(dir, "weir.yaml")
	if err := os.WriteFile(file, []byte(l.weirConfig()), 0o600); err != nil {
		return w, fmt.Errorf("configuration of Weir's NAT: %w", err)
	}
	w.daemon, err = programs.StartDaemon(ctx, w.group, w.host, binary, dir, "weir",
		"lb", "run", "-c", file, "--datapath", "ebpf", "--interface", strings.Join(l.weirInterfaces(), ","), "--pin-path", w.pins)
	if err != nil {
		return w, err
	}
	return w, w.daemon.Ready(ctx)
}

// exhausted is how many packets found no port.
func (w *weirNAT) exhausted(ctx context.Context) (n uint64, err error) {
	var status struct {
		Kernel struct {
			Reasons map[string]map[string]struct {
				Packets uint64 `json:"packets"`
			} `json:"reasons"`
		} `json:"ebpf"`
	}
	if err := errors.Join(w.daemon.Failure(), w.daemon.Get(ctx, "/status", &status)); err != nil {
		return 0, fmt.Errorf("counters of Weir's NAT: %w", err)
	}
	for _, reasons := range status.Kernel.Reasons {
		n += reasons["snat_exhausted"].Packets
	}
	return n, nil
}

// stop ends the process and removes tables and programs, which outlive it.
func (w *weirNAT) stop(ctx context.Context) error {
	if w == nil {
		return nil
	}
	defer w.dir.Remove()
	if w.daemon == nil {
		return nil
	}
	err := errors.Join(w.daemon.Stop(), programs.StopWeir(ctx, w.group, w.binary, w.host, w.pins))
	w.group.End()
	return err
}

// sweepPins removes what a run left that was killed.
func sweepPins() error {
	entries, err := os.ReadDir(pinFolder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, entry := range entries {
		var pid int
		if n, _ := fmt.Sscanf(entry.Name(), "snatlab-%d-", &pid); n == 1 && pid > 0 && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(pinFolder, entry.Name())))
		}
	}
	return err
}

func (l *layout) weirInterfaces() []string {
	if l.weirAt() == serverNode {
		return []string{"eth0", "eth1"}
	}
	all := []string{"server"}
	for i := range l.scenario.Nodes {
		all = append(all, fmt.Sprint("node", i))
	}
	return all
}

// weirConfig is a service for each VIP. Half-open and closed flows give their ports back soon: a run is short.
func (l *layout) weirConfig() string {
	var b strings.Builder
	fmt.Fprintf(&b, "hash_key: 5d0f2c4a6b8e1937c5d0f2c4a6b8e193\nlimits: {flows: %d}\nservices:\n", max(1<<17, 2*l.plan.Demand))
	service := func(name string, at netip.AddrPort, to netip.AddrPort, p pool) {
		var sources []string
		for _, a := range p.addresses {
			sources = append(sources, fmt.Sprintf("%q", a))
		}
		fmt.Fprintf(&b, "- name: %s\n  mode: nat\n  timeouts: {tcp_opening: 10s, tcp_closing: 2s}\n  vips: [{address: %q, protocol: tcp, port: %d}]\n", name, at.Addr(), at.Port())
		fmt.Fprintf(&b, "  snat: {addresses: [%s], ports: %d-%d}\n  backends: [{name: server, address: %q, port: %d}]\n", strings.Join(sources, ", "), p.first, p.last, to.Addr(), to.Port())
	}
	nodes := l.scenario.Nodes
	if l.last == snat.MasqueradeLB || l.vipsOf(1) == 0 {
		nodes = 1
	}
	for i := range nodes {
		p := l.poolOf(l.last, i)
		for d, to := range l.servers() {
			at := nodePort(d)
			if l.weirAt() == cloud {
				at = netip.AddrPortFrom(vip(i, d), port)
			}
			if len(p.addresses) > 0 {
				service(fmt.Sprintf("node%d-%d", i, d), at, to, p)
			}
		}
	}
	return b.String()
}
