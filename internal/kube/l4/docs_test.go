package l4

import (
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/kube/conditions"
	"github.com/weir-lb/weir/internal/kube/l4/policyv1alpha1"
	"github.com/weir-lb/weir/internal/kube/world"
)

// The manifests of the page are accepted as they are.
func TestExampleOfThePage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/kubernetes-policy.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```yaml\n")
	text, _, ok := strings.Cut(rest, "\n```\n")
	if !ok {
		t.Fatal("the page has no YAML")
	}
	class, _, _ := strings.Cut(twoGateways, "---")
	objects := read(t, []byte(class+"---\n"+text))
	o := Options{Pools: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}
	for range 2 {
		result := o.Translate(world.New(now, objects...))
		objects = apply(objects, o.Translate(world.New(now, objects...).With(map[string]map[string]string{Plane: result.Configs[0].Pieces}, nil)))
	}
	policies := 0
	for _, object := range objects {
		p, ok := object.(*policyv1alpha1.LoadBalancerPolicy)
		if !ok {
			continue
		}
		policies++
		for _, a := range p.Status.Ancestors {
			for _, kind := range []string{accepted, programmed} {
				if c := conditions.Find(a.Conditions, kind); c == nil || c.Status != "True" {
					t.Errorf("%s of %s: %+v", kind, p.Name, c)
				}
			}
		}
	}
	if policies != 1 {
		t.Errorf("%d policies", policies)
	}
}
