package l4

import (
	"fmt"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weir-lb/weir/internal/kube/l4/policyv1alpha1"
	"github.com/weir-lb/weir/internal/kube/world"
)

// policy is a LoadBalancerPolicy.
type policy struct {
	object    *policyv1alpha1.LoadBalancerPolicy
	targets   []*attachment
	refused   *problem // of the policy as a whole: its last valid settings stay in force
	badNodes  []string // node ids that are left out
	remaining int      // places where refused settings have been replaced by those in force before
}

// attachment is one target of a policy.
type attachment struct {
	policy  *policy
	ref     *gatewayv1.LocalPolicyTargetReferenceWithSectionName
	refused *problem // of this target
	places  []*place // where the policy decides because of this target
}

// settlePolicies finds the policy of each place, checks every policy, and gives each place its settings.
func (t *translation) settlePolicies() {
	attached := t.attachPolicies()
	for _, p := range t.places {
		t.choose(p, attached)
	}
	for _, p := range t.policies {
		t.checkPolicy(p)
	}
	for _, p := range t.places {
		t.settle(p)
	}
}

// attachPolicies finds the targets of all policies. Of several policies on one target the oldest one has it.
func (t *translation) attachPolicies() map[string]*attachment {
	attached := map[string]*attachment{}
	var all []*policyv1alpha1.LoadBalancerPolicy
	for object := range world.All[*policyv1alpha1.LoadBalancerPolicy](t.world) {
		if object.DeletionTimestamp == nil {
			all = append(all, object)
		}
	}
	slices.SortStableFunc(all, func(a, b *policyv1alpha1.LoadBalancerPolicy) int { return byAge(a, b) })
	for _, object := range all {
		p := &policy{object: object}
		t.policies = append(t.policies, p)
		for i := range object.Spec.TargetRefs {
			a := &attachment{policy: p, ref: &object.Spec.TargetRefs[i]}
			at := targetKey(object.Namespace, a.ref)
			if slices.ContainsFunc(p.targets, func(other *attachment) bool { return reflect.DeepEqual(other.ref, a.ref) }) {
				p.refuse(string(gatewayv1.PolicyReasonInvalid), fmt.Sprintf("targetRefs[%d]: %s is named twice; remove one", i, at))
				continue
			}
			p.targets = append(p.targets, a)
			other := attached[at]
			if a.refused = t.findTarget(object.Namespace, a.ref); a.refused == nil && other == nil {
				attached[at] = a
			} else if a.refused == nil {
				a.refused = &problem{string(gatewayv1.PolicyReasonConflicted), fmt.Sprintf("%s has the older policy %s; delete one, or attach this one elsewhere", at, key(other.policy.object))}
			}
		}
	}
	return attached
}

// targetKey names a target in a place's list of them.
func targetKey(namespace string, ref *gatewayv1.LocalPolicyTargetReferenceWithSectionName) string {
	at := fmt.Sprintf("%s %s/%s", ref.Kind, namespace, ref.Name)
	if ref.SectionName != nil {
		at += "/" + string(*ref.SectionName)
	}
	return at
}

// findTarget says why a target is none.
func (t *translation) findTarget(namespace string, ref *gatewayv1.LocalPolicyTargetReferenceWithSectionName) *problem {
	name, ok := string(ref.Name), false
	group := gatewayv1.Group(gatewayv1.GroupName)
	switch ref.Kind {
	case "Gateway":
		return t.findGateway(namespace, ref)
	case "UDPRoute":
		_, ok = world.Get[*gatewayv1.UDPRoute](t.world, namespace, name)
	case "TCPRoute":
		_, ok = world.Get[*gatewayv1.TCPRoute](t.world, namespace, name)
	case "Service":
		group = ""
		_, ok = world.Get[*corev1.Service](t.world, namespace, name)
	default:
		return &problem{string(gatewayv1.PolicyReasonInvalid), fmt.Sprintf("kind %s has no policy; attach it to a Gateway, UDPRoute, TCPRoute or Service", ref.Kind)}
	}
	switch {
	case ref.Group != group:
		return &problem{string(gatewayv1.PolicyReasonInvalid), fmt.Sprintf("kind %s is of group %q, not %q", ref.Kind, group, ref.Group)}
	case ref.SectionName != nil:
		return &problem{string(gatewayv1.PolicyReasonInvalid), fmt.Sprintf("sectionName %q: a %s has no sections here; name a listener of a Gateway, or remove it", *ref.SectionName, ref.Kind)}
	case !ok:
		return &problem{string(gatewayv1.PolicyReasonTargetNotFound), fmt.Sprintf("there is no %s %s/%s", ref.Kind, namespace, name)}
	}
	return nil
}

func (t *translation) findGateway(namespace string, ref *gatewayv1.LocalPolicyTargetReferenceWithSectionName) *problem {
	if ref.Group != gatewayv1.GroupName {
		return &problem{string(gatewayv1.PolicyReasonInvalid), fmt.Sprintf("kind Gateway is of group %q, not %q", gatewayv1.GroupName, ref.Group)}
	}
	notFound := string(gatewayv1.PolicyReasonTargetNotFound)
	at := slices.IndexFunc(t.gateways, func(g *gateway) bool {
		return g.object.Namespace == namespace && g.object.Name == string(ref.Name)
	})
	if at < 0 {
		if _, there := world.Get[*gatewayv1.Gateway](t.world, namespace, string(ref.Name)); there {
			return &problem{notFound, fmt.Sprintf("Gateway %s/%s is not of a GatewayClass of this controller", namespace, ref.Name)}
		}
		return &problem{notFound, fmt.Sprintf("there is no Gateway %s/%s", namespace, ref.Name)}
	}
	if ref.SectionName == nil || slices.ContainsFunc(t.gateways[at].listeners, func(l *listener) bool { return l.spec.Name == *ref.SectionName }) {
		return nil
	}
	return &problem{notFound, fmt.Sprintf("Gateway %s/%s has no listener %q", namespace, ref.Name, *ref.SectionName)}
}

// choose finds the policy of a place: that of the most specific target that has one. It counts whole, without any merge.
func (t *translation) choose(p *place, attached map[string]*attachment) {
	for _, targets := range p.attached {
		var found []*attachment
		for _, at := range targets {
			if a := attached[at]; a != nil && !slices.Contains(found, a) {
				found = append(found, a)
			}
		}
		if len(found) == 0 {
			continue
		}
		if mixed(targets, found) { // one service of the load balancer cannot have the settings of several
			for _, a := range found {
				a.policy.refuse(string(gatewayv1.PolicyReasonConflicted), fmt.Sprintf(
					"%s: %s sends to several Services, and not all of them have this policy; attach it to all of them or to the route", p.title, p.route))
			}
			continue
		}
		p.policy = found[0].policy
		for _, a := range found {
			a.places = append(a.places, p)
		}
		return
	}
}

// mixed says whether the targets have different policies, or some of them none.
func mixed(targets []string, found []*attachment) bool {
	distinct := slices.Compact(slices.Sorted(slices.Values(targets)))
	return len(distinct) != len(found) || slices.ContainsFunc(found, func(a *attachment) bool { return a.policy != found[0].policy })
}

func (p *policy) refuse(reason, message string) {
	if p.refused == nil {
		p.refused = &problem{reason, message}
	}
}

// settle gives a place the settings of its policy, or if these are refused the last valid ones that can be used there.
func (t *translation) settle(p *place) {
	switch {
	case p.policy == nil:
	case p.policy.refused == nil:
		p.settings = &p.policy.object.Spec.Settings
	case p.policy.object.Status.InForce != nil && t.checkPlace(p, &p.policy.object.Status.InForce.Settings) == "":
		p.settings = &p.policy.object.Status.InForce.Settings
		p.policy.remaining++
	}
}
