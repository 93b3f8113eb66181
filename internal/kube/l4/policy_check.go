package l4

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/kube/l4/policyv1alpha1"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// checkPolicy refuses a policy that cannot be used in one of its places.
func (t *translation) checkPolicy(p *policy) {
	for _, a := range p.targets {
		for _, at := range a.places {
			if wrong := t.checkPlace(at, &p.object.Spec.Settings); wrong != "" {
				p.refuse(string(gatewayv1.PolicyReasonInvalid), fmt.Sprintf("%s: %s", at.title, wrong))
			}
		}
	}
	if len(p.targets) > 0 && p.refused == nil { // also where it has no place yet
		if wrong := t.compile(&p.object.Spec.Settings, "").wrong; wrong != "" {
			p.refuse(string(gatewayv1.PolicyReasonInvalid), wrong)
		}
	}
}

// checkPlace says what is wrong with settings in a place; empty: nothing is.
func (t *translation) checkPlace(p *place, s *policyv1alpha1.Settings) string {
	if wrong := t.compile(s, p.protocol).wrong; wrong != "" {
		return wrong
	}
	if !keepsPorts(s) {
		return ""
	}
	for i := range p.targets {
		for _, is6 := range []bool{false, true} {
			for _, e := range t.endpointsOf(&p.targets[i], is6) {
				if int32(e.address.Port()) != p.port {
					return fmt.Sprintf("mode: %s does not change ports, and endpoint %s has another one than %d; give the Service that targetPort, or write nat", s.Mode, e.address, p.port)
				}
			}
		}
	}
	return ""
}

// check is a question to compile.
type check struct {
	settings *policyv1alpha1.Settings
	protocol string
}

// compiled is its answer.
type compiled struct {
	wrong   string // what is wrong, with the path in the policy; empty: nothing is
	maxNode uint32 // greatest node id of the widest layout
}

// smallest is the smallest table that the compiler takes.
const smallest = 251

// compile lets the load balancer's own compiler judge settings: a small service with them, of a protocol; empty: one that suits them.
func (t *translation) compile(s *policyv1alpha1.Settings, protocol string) compiled {
	at := check{s, protocol}
	if known, ok := t.compiled[at]; ok {
		return known
	}
	if s.Mode == "mark" {
		return compiled{wrong: "mode: mark needs routes on each node, which a policy cannot give; write nat, l2dsr or l3dsr"}
	}
	if protocol == "" {
		protocol = "udp"
	}
	service := serviceDocument{Name: "policy", VIPs: []vipDocument{{"192.0.2.1", protocol, 1}}, Backends: []backendDocument{{Name: "a", Address: "192.0.2.2", Port: 2, Weight: 1}}}
	if service.apply(s); keepsPorts(s) {
		service.Backends[0].Port = 0
	}
	small := document{MaglevSize: smallest, Services: []serviceDocument{service}}
	spec, _, err := config.Decode[lb.Spec]("policy", small.text())
	answer := compiled{}
	if err == nil {
		var snapshot *lb.Snapshot
		if snapshot, err = lb.Compile(spec, nil, lb.AllCaps()); err == nil && snapshot.Services[0].CID != nil {
			for i := range snapshot.Services[0].CID.Layouts {
				answer.maxNode = max(answer.maxNode, snapshot.Services[0].CID.Layouts[i].MaxOwner())
			}
		}
	}
	if err != nil {
		answer.wrong = policyError(err)
	}
	t.compiled[at] = answer
	return answer
}

// policyError tells the first error with the names of the policy's fields.
func policyError(err error) string {
	path, text := "", err.Error()
	var decoded *config.Error
	var wrong *lb.Error
	switch {
	case errors.As(err, &decoded):
		path, text = decoded.Path, decoded.Message
	case errors.As(err, &wrong):
		path, text = wrong.Path, wrong.What+"; "+wrong.Remedy
	}
	path = strings.TrimPrefix(strings.TrimPrefix(path, "services[0]"), ".")
	if path == "" {
		return text
	}
	return camel(path) + ": " + text
}

var underscored = regexp.MustCompile(`_(id|lb|[a-z])`)

// camel is a path of lb.Spec with the names of a policy: the inverse of snake.
func camel(path string) string {
	return underscored.ReplaceAllStringFunc(path, func(word string) string { return strings.ToUpper(word[1:]) })
}
