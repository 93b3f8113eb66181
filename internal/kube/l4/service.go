package l4

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weir-lb/weir/internal/kube/conditions"
	"github.com/weir-lb/weir/internal/kube/operator"
	"github.com/weir-lb/weir/internal/kube/world"
)

// ServiceCondition is the condition of Services that says whether the data path serves them.
const ServiceCondition = "weir-lb.github.io/Programmed"

// service is a Service of type LoadBalancer with our class.
type service struct {
	object    *corev1.Service
	addresses addresses
	sources   []string // of its clients; empty: all
	places    []*place
	piece     piece
}

func loadBalancers(w *world.World) (all []*service) {
	for s := range world.All[*corev1.Service](w) {
		if s.Spec.Type != corev1.ServiceTypeLoadBalancer || s.Spec.LoadBalancerClass == nil || *s.Spec.LoadBalancerClass != ControllerName || s.DeletionTimestamp != nil {
			continue
		}
		n := &service{object: s, addresses: addresses{held: ingress(s)}}
		wanted := strings.FieldsFunc(s.Annotations[AddressesAnnotation], func(r rune) bool { return r == ',' || r == ' ' })
		if s.Spec.LoadBalancerIP != "" {
			wanted = append(wanted, s.Spec.LoadBalancerIP)
		}
		for _, text := range wanted {
			address, err := netip.ParseAddr(text)
			if err != nil {
				n.addresses.invalid = &problem{string(gatewayv1.GatewayReasonUnsupportedAddress), fmt.Sprintf("%q is no IP address", text)}
				continue
			}
			n.addresses.asked = append(n.addresses.asked, address.Unmap())
		}
		if len(wanted) == 0 {
			n.addresses.any = -1
		}
		if err := n.ranges(); err != nil {
			n.addresses.invalid = &problem{"UnsupportedValue", err.Error()}
		}
		all = append(all, n)
	}
	return all
}

// maxSources is how many sources a service of the load balancer may have.
const maxSources = 256

// ranges reads spec.loadBalancerSourceRanges, which may have blanks around each range and bits behind its length.
func (s *service) ranges() error {
	for _, text := range s.object.Spec.LoadBalancerSourceRanges {
		prefix, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil {
			return fmt.Errorf("spec.loadBalancerSourceRanges: %q is no range such as 10.0.0.0/8", text)
		}
		if source := prefix.Masked().String(); !slices.Contains(s.sources, source) {
			s.sources = append(s.sources, source)
		}
	}
	if len(s.sources) > maxSources {
		return fmt.Errorf("spec.loadBalancerSourceRanges has %d ranges; the most is %d", len(s.sources), maxSources)
	}
	slices.Sort(s.sources)
	return nil
}

// serviceStatus writes addresses once the data path serves them.
func (t *translation) serviceStatus(s *service) {
	t.result.Statuses = append(t.result.Statuses, operator.Status(s.object, func(c *corev1.Service) {
		set := conditions.New(c.Status.Conditions, c.Generation, t.world.Now)
		a := &s.addresses
		old := conditions.Find(c.Status.Conditions, ServiceCondition)
		had := len(a.assigned) > 0 && sameAddresses(ingress(c), a.assigned) // its addresses are served, if only as before
		switch {
		case a.invalid != nil:
			set.False(ServiceCondition, a.invalid.reason, a.invalid.message)
		case len(a.assigned) == 0 && a.refused != nil:
			set.False(ServiceCondition, a.refused.reason, a.refused.message)
		case t.refused(&s.piece):
			set.False(ServiceCondition, "Pending", t.pending())
		case t.applied(&s.piece):
			message := ""
			if a.refused != nil {
				message = a.refused.message
			}
			set.True(ServiceCondition, "Programmed", message)
		default:
			if old != nil && old.Status == metav1.ConditionTrue && had {
				return
			}
			set.False(ServiceCondition, "Pending", t.pending())
		}
		for i := range c.Status.Conditions {
			if o := &c.Status.Conditions[i]; o.Type != ServiceCondition {
				set.Keep(*o)
			}
		}
		c.Status.Conditions = set.All()
		c.Status.LoadBalancer.Ingress = nil
		if set.Is(ServiceCondition) || had && a.invalid == nil {
			for _, address := range a.assigned {
				c.Status.LoadBalancer.Ingress = append(c.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: address.String(), IPMode: new(corev1.LoadBalancerIPModeVIP)})
			}
		}
	}))
	for _, p := range []*problem{s.addresses.invalid, s.addresses.refused} {
		if p != nil {
			t.result.Events = append(t.result.Events, operator.Event{Object: s.object, Warning: true, Reason: p.reason, Action: "AssignAddresses", Note: p.message})
		}
	}
}

func sameAddresses(a, b []netip.Addr) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.SortFunc(a, netip.Addr.Compare)
	slices.SortFunc(b, netip.Addr.Compare)
	return slices.Equal(a, b)
}
