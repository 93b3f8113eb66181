package snatlab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"

	"github.com/weir-lb/weir/internal/snat"
)

// startWeir starts `weir lb run`, which translates in one namespace.
func (r *run) startWeir(ctx context.Context) (err error) {
	l := r.layout
	name := "snatlab-" + filepath.Base(r.Dir) // of all scenarios that run side by side, each has another
	if r.weir, err = r.Kernel(ctx, l.weirAt(), name, l.weirConfig(), strings.Join(l.weirInterfaces(), ",")); err != nil {
		return err
	}
	return r.weir.Ready(ctx)
}

// exhausted is how many packets found no port.
func (r *run) exhausted(ctx context.Context) (n uint64, err error) {
	var status struct {
		Kernel struct {
			Reasons map[string]map[string]struct {
				Packets uint64 `json:"packets"`
			} `json:"reasons"`
		} `json:"ebpf"`
	}
	if err := errors.Join(r.weir.Failure(), r.weir.Get(ctx, "/status", &status)); err != nil {
		return 0, fmt.Errorf("counters of Weir's NAT: %w", err)
	}
	for _, reasons := range status.Kernel.Reasons {
		n += reasons["snat_exhausted"].Packets
	}
	return n, nil
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
