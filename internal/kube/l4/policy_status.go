package l4

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weir-lb/weir/internal/kube/conditions"
	"github.com/weir-lb/weir/internal/kube/l4/policyv1alpha1"
	"github.com/weir-lb/weir/internal/kube/operator"
)

const (
	// PolicyNodes is the condition of policies that says whether Pods have the node ids that the policy reads.
	PolicyNodes = "ResolvedNodes"
	invalidNode = "InvalidNodeIDs"
	notUsed     = "NotUsed"
)

// policyStatus writes the entries of this controller's targets, and leaves those of others alone.
func (t *translation) policyStatus(p *policy) {
	t.result.Statuses = append(t.result.Statuses, operator.Status(p.object, func(c *policyv1alpha1.LoadBalancerPolicy) {
		before := c.Status.Ancestors
		c.Status.Ancestors = []gatewayv1.PolicyAncestorStatus{}
		for i := range before {
			if before[i].ControllerName != ControllerName {
				c.Status.Ancestors = append(c.Status.Ancestors, before[i])
			}
		}
		for _, a := range p.targets {
			s := gatewayv1.PolicyAncestorStatus{AncestorRef: a.ancestor(), ControllerName: ControllerName}
			at := slices.IndexFunc(before, func(o gatewayv1.PolicyAncestorStatus) bool {
				return o.ControllerName == ControllerName && reflect.DeepEqual(o.AncestorRef, s.AncestorRef)
			})
			var old []metav1.Condition
			if at >= 0 {
				old = before[at].Conditions
			}
			s.Conditions = t.policyConditions(a, old)
			c.Status.Ancestors = append(c.Status.Ancestors, s)
		}
		if used := slices.ContainsFunc(p.targets, func(a *attachment) bool { return a.refused == nil }); used && p.refused == nil {
			c.Status.InForce = &policyv1alpha1.InForce{Generation: c.Generation, Settings: *c.Spec.Settings.DeepCopy()}
		}
	}))
	for _, wrong := range append([]*problem{p.refused}, p.refusedTargets()...) {
		if wrong != nil {
			t.result.Events = append(t.result.Events, operator.Event{Object: p.object, Warning: true, Reason: wrong.reason, Action: "Translate", Note: shortened(wrong.message)})
		}
	}
}

func (p *policy) refusedTargets() (all []*problem) {
	for _, a := range p.targets {
		all = append(all, a.refused)
	}
	return all
}

// ancestor refers to the target itself: one that is not there has no Gateway.
func (a *attachment) ancestor() gatewayv1.ParentReference {
	return gatewayv1.ParentReference{
		Group: new(a.ref.Group), Kind: new(a.ref.Kind), Namespace: new(gatewayv1.Namespace(a.policy.object.Namespace)),
		Name: a.ref.Name, SectionName: a.ref.SectionName,
	}
}

func (t *translation) policyConditions(a *attachment, before []metav1.Condition) []metav1.Condition {
	p := a.policy
	set := conditions.New(before, p.object.Generation, t.world.Now)
	wrong := a.refused
	if wrong == nil {
		wrong = p.refused
	}
	switch {
	case wrong == nil:
		set.True(accepted, string(gatewayv1.PolicyReasonAccepted), "")
	case a.refused == nil && p.remaining > 0:
		set.False(accepted, wrong.reason, fmt.Sprintf("%s; the settings of generation %d stay in force", wrong.message, p.object.Status.InForce.Generation))
	default:
		set.False(accepted, wrong.reason, wrong.message)
	}
	switch reads := slices.ContainsFunc(a.places, func(p *place) bool { return p.settings != nil && p.settings.CID != nil }); {
	case reads && len(p.badNodes) > 0:
		set.False(PolicyNodes, invalidNode, someOf(p.badNodes))
	case reads:
		set.True(PolicyNodes, PolicyNodes, "")
	}
	t.policyProgrammed(a, set)
	return set.All()
}

// policyProgrammed says whether the data path runs the settings in every place of a target.
func (t *translation) policyProgrammed(a *attachment, set *conditions.Set) {
	switch {
	case !set.Is(accepted):
		set.False(programmed, string(gatewayv1.PolicyReasonInvalid), "the policy is not accepted")
	case len(a.places) == 0:
		set.False(programmed, notUsed, "no port of this controller is served with it: nothing is served by the target, or a more specific target has a policy")
	case slices.ContainsFunc(a.places, func(p *place) bool { return !t.applied(p.owner) || t.refused(p.owner) }):
		set.False(programmed, string(gatewayv1.GatewayReasonPending), t.pending())
	default:
		set.True(programmed, programmed, "")
	}
}

// someOf lists the first of many things.
func someOf(all []string) string {
	const shown = 3
	text := strings.Join(all[:min(len(all), shown)], "; ")
	if len(all) > shown {
		text += fmt.Sprintf("; and %d more", len(all)-shown)
	}
	return text
}

// shortened keeps a note within the bound of events.
func shortened(text string) string {
	const longest = 1000
	return text[:min(len(text), longest)]
}
