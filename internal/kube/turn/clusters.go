package turn

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weir-lb/weir/internal/kube/turn/stunnerv1"
)

// reasoned is an error with the reason of a condition.
type reasoned struct {
	reason gatewayv1.RouteConditionReason
	text   string
}

func (e *reasoned) Error() string { return e.text }

func because(reason gatewayv1.RouteConditionReason, format string, args ...any) error {
	return &reasoned{reason, fmt.Sprintf(format, args...)}
}

// cluster makes the cluster of a route, of those of its backends that are right, and its condition, about the first that is not.
func (t *translation) cluster(r *route) {
	r.cluster = Cluster{Name: r.String(), Type: "STATIC", Endpoints: []string{}}
	const kind = gatewayv1.RouteConditionResolvedRefs
	r.resolved = yes(kind, gatewayv1.RouteReasonResolvedRefs, "all backends are there")
	if len(r.rules) == 0 {
		r.resolved = no(kind, gatewayv1.RouteReasonBackendNotFound, "spec.rules: missing; write one rule with backendRefs")
		return
	}
	if len(r.rules) > 1 {
		t.warn(r.object, "UDPRoute", "OneRule", fmt.Sprintf("spec.rules: only the first one of %d counts; write all backendRefs there", len(r.rules)))
	}
	var wrong error
	for i := range r.rules[0] {
		ref := &r.rules[0][i]
		peers, dns, err := t.backend(r, ref)
		if err == nil && len(r.cluster.Endpoints) > 0 && dns != (r.cluster.Type == "STRICT_DNS") {
			err = because(gatewayv1.RouteReasonUnsupportedValue, "it is reached by address and others by name; write a UDPRoute of its own for it")
		}
		if err == nil {
			peers, err = withPorts(ref, peers)
		}
		if err != nil {
			if wrong == nil {
				wrong = fmt.Errorf("spec.rules[0].backendRefs[%d]: %w", i, err)
			}
			continue
		}
		if dns {
			r.cluster.Type = "STRICT_DNS"
		}
		r.cluster.Endpoints = append(r.cluster.Endpoints, peers...)
	}
	slices.Sort(r.cluster.Endpoints)
	r.cluster.Endpoints = slices.Compact(r.cluster.Endpoints)
	if wrong == nil {
		return
	}
	reason := gatewayv1.RouteReasonBackendNotFound
	var refused *notPermitted
	var why *reasoned
	switch {
	case errors.As(wrong, &refused):
		reason = gatewayv1.RouteReasonRefNotPermitted
	case errors.As(wrong, &why):
		reason = why.reason
	}
	r.resolved = no(kind, reason, wrong.Error())
	t.warn(r.object, "UDPRoute", string(reason), wrong.Error())
}

// backend are the peers of a backend, as names if dns.
func (t *translation) backend(r *route, ref *stunnerv1.BackendRef) (peers []string, dns bool, err error) {
	kind, group := string(deref(ref.Kind, "Service")), string(deref(ref.Group, ""))
	name := types.NamespacedName{Namespace: string(deref(ref.Namespace, gatewayv1.Namespace(r.Namespace))), Name: string(ref.Name)}
	switch {
	case kind == "Service" && group == "":
	case kind == "StaticService" && group == stunnerv1.Group:
	default:
		return nil, false, because(gatewayv1.RouteReasonInvalidKind, "there is no backend of kind %s and group %q; write a Service, or a StaticService of group %s", kind, group, stunnerv1.Group)
	}
	by := from{r.group, "UDPRoute", r.Namespace}
	if (t.options.Grants || r.group != stunnerv1.Group) && !t.granted(by, group, kind, name) {
		return nil, false, &notPermitted{by, kind, name}
	}
	if kind == "StaticService" {
		peers, err = t.static(r, name)
		return peers, false, err
	}
	service := t.services[name]
	if service == nil {
		return nil, false, because(gatewayv1.RouteReasonBackendNotFound, "there is no Service %s; create it", name)
	}
	if !t.options.Endpoints {
		return []string{name.Name + "." + name.Namespace + ".svc." + t.options.Domain}, true, nil
	}
	peers = slices.Clone(t.index.addresses[name])
	if t.options.ClusterIPs {
		for _, address := range service.Spec.ClusterIPs {
			if address != "" && address != corev1.ClusterIPNone {
				peers = append(peers, address)
			}
		}
	}
	return peers, false, nil
}

// static are the prefixes of a StaticService.
func (t *translation) static(r *route, name types.NamespacedName) ([]string, error) {
	static := t.statics[name]
	if static == nil {
		return nil, because(gatewayv1.RouteReasonBackendNotFound, "there is no StaticService %s; create it", name)
	}
	var peers []string
	for i, text := range static.Spec.Prefixes {
		prefix, err := netip.ParsePrefix(text)
		if address, wrong := netip.ParseAddr(text); wrong == nil && address.Zone() == "" {
			prefix, err = netip.PrefixFrom(address, address.BitLen()), nil
		}
		if err != nil {
			return nil, because(gatewayv1.RouteReasonUnsupportedValue, "StaticService %s: spec.prefixes[%d]: %q is no address or prefix; write one such as 192.0.2.0/24", name, i, text)
		}
		if covered := t.covers(prefix); covered != "" {
			t.warn(r.object, "UDPRoute", "PrefixCoversCluster", fmt.Sprintf("StaticService %s: spec.prefixes[%d]: clients reach Service %s through %s, with every other one there; name Services of the cluster as backends, each by itself",
				name, i, covered, text))
		}
		if prefix.IsSingleIP() {
			peers = append(peers, prefix.Addr().String())
		} else {
			peers = append(peers, prefix.Masked().String())
		}
	}
	return peers, nil
}

// covers is a Service of the cluster whose address a prefix contains.
func (t *translation) covers(prefix netip.Prefix) string {
	for _, s := range t.clusterIPs {
		if prefix.Contains(s.address) {
			return s.service
		}
	}
	return ""
}

// withPorts adds the range of ports of a backend to its peers, names too: stunnerd, which knows no range there, then reaches none of them.
func withPorts(ref *stunnerv1.BackendRef, peers []string) ([]string, error) {
	if ref.Port == nil && ref.EndPort == nil {
		return peers, nil
	}
	first := deref(ref.Port, 1)
	last := deref(ref.EndPort, first)
	if first < 1 || last > 65535 || last < first {
		return nil, because(gatewayv1.RouteReasonUnsupportedValue, "ports %d to %d are no range; write port and endPort, from 1 to 65535 in this order", first, last)
	}
	if first == 1 && last == 65535 {
		return peers, nil
	}
	for i := range peers {
		peers[i] = fmt.Sprintf("%s:<%d-%d>", peers[i], first, last)
	}
	return peers, nil
}
