package snatlab

import (
	"context"
	"fmt"
	"os/exec"
	"strings"

	"github.com/weir-lb/weir/internal/snat"
)

// applyKernel loads what the kernel translates into each namespace.
func (r *run) applyKernel(ctx context.Context) error {
	for _, ns := range r.Lab.Topology().Namespaces {
		rules := r.layout.rules(ns.Name)
		if rules == "" {
			continue
		}
		nft := exec.Command("nft", "-f", "-")
		nft.Stdin = strings.NewReader(rules)
		if _, err := r.Output(ctx, ns.Name, nft); err != nil {
			return fmt.Errorf("in %s: %w\n%s", ns.Name, err, rules)
		}
	}
	return nil
}

// rules are those of one namespace; empty: none.
func (l *layout) rules(namespace string) string {
	var pre, post []string
	switch {
	case namespace == cloud:
		if l.kernel(snat.DNATLB) {
			for i := range l.scenario.Destinations {
				to := l.servers()[i]
				if l.has(snat.MasqueradeLB) {
					to = nodePort(i)
				}
				pre = append(pre, fmt.Sprintf("ip daddr %v tcp dport %d dnat to %v", vip(0, i), port, to))
			}
		}
		if l.kernel(l.inCloud) {
			post = l.cloudRules()
		}
	case namespace == serverNode:
		if l.kernel(snat.MasqueradeLB) {
			for i := range l.scenario.Destinations {
				pre = append(pre, fmt.Sprintf("ip daddr %v tcp dport %d dnat to %v", nodePort(i).Addr(), nodePort(i).Port(), l.servers()[i]))
			}
			post = []string{`oifname "eth1" ` + l.masquerade(snat.MasqueradeLB)}
		}
	case strings.HasPrefix(namespace, "node"):
		if l.kernel(snat.Masquerade) {
			post = []string{`oifname "eth0" ` + l.masquerade(snat.Masquerade)}
		}
	}
	var b strings.Builder
	if namespace == cloud && l.kernel(l.inCloud) && (l.inCloud == snat.AzureNAT || l.inCloud == snat.AWSNAT) {
		p := l.poolOf(l.inCloud, 0)
		for i, a := range p.addresses {
			fmt.Fprintf(&b, " chain %s {\n  meta l4proto tcp snat to %v:%d-%d\n }\n", addressChain(i), a, p.first, p.last)
		}
	}
	for _, c := range []struct {
		hook  string
		rules []string
	}{{"prerouting priority dstnat", pre}, {"postrouting priority srcnat", post}} {
		if len(c.rules) > 0 {
			name, _, _ := strings.Cut(c.hook, " ")
			fmt.Fprintf(&b, " chain %s {\n  type nat hook %s;\n  %s\n }\n", name, c.hook, strings.Join(c.rules, "\n  "))
		}
	}
	if b.Len() == 0 {
		return ""
	}
	return "table ip snatlab {\n" + b.String() + "}\n"
}

// cloudRules are those of the cloud's translator of sources. A range of ports wants a transport match before it.
func (l *layout) cloudRules() []string {
	switch l.inCloud {
	case snat.AzureNAT, snat.AWSNAT:
		// One address for each connection, as a gateway picks them. `snat to a-b` takes one by a hash of source and
		// destination: a node that masquerades would have one for all.
		var to []string
		for i := range l.poolOf(l.inCloud, 0).addresses {
			to = append(to, fmt.Sprintf("%d : goto %s", i, addressChain(i)))
		}
		return []string{fmt.Sprintf(`oifname "server" meta l4proto tcp numgen random mod %d vmap { %s }`, len(to), strings.Join(to, ", "))}
	case snat.AzureLB, snat.GCPNAT:
	default:
		return nil
	}
	var all []string
	for i := range l.scenario.Nodes {
		from := fmt.Sprintf("ip saddr { %v, %v } ", uplink(i), podNet(i))
		p := l.poolOf(l.inCloud, i)
		if len(p.addresses) == 0 {
			all = append(all, from+"drop")
			continue
		}
		all = append(all, fmt.Sprintf("%smeta l4proto tcp snat to %v:%d-%d", from, p.addresses[0], p.first, p.last))
	}
	return all
}

func addressChain(i int) string { return fmt.Sprint("address", i) }

// masquerade is kube-proxy's, whose range is what the kernel takes by itself, or with another range.
func (l *layout) masquerade(k snat.Kind) string {
	ports := int(l.kinds[k].PerKey)
	if ports == 1<<16-firstNAT {
		return "meta l4proto tcp masquerade"
	}
	return fmt.Sprintf("meta l4proto tcp masquerade to :%d-%d", firstNAT, firstNAT+ports-1)
}
