package l4

import (
	"bytes"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/kube/l4/policyv1alpha1"
	"github.com/weir-lb/weir/internal/kube/operator"
	"github.com/weir-lb/weir/internal/kube/world"
	"github.com/weir-lb/weir/internal/steering/lb"
)

var update = flag.Bool("update", false, "write the golden files again")

// now is the time of the first render; conditions that do not change keep it.
var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// empty is an object of each kind that the tests read.
func empty(kind string) client.Object {
	switch kind {
	case "GatewayClass":
		return new(gatewayv1.GatewayClass)
	case "Gateway":
		return new(gatewayv1.Gateway)
	case "UDPRoute":
		return new(gatewayv1.UDPRoute)
	case "TCPRoute":
		return new(gatewayv1.TCPRoute)
	case "ReferenceGrant":
		return new(gatewayv1.ReferenceGrant)
	case "Service":
		return new(corev1.Service)
	case "Namespace":
		return new(corev1.Namespace)
	case "EndpointSlice":
		return new(discoveryv1.EndpointSlice)
	case "LoadBalancerPolicy":
		return new(policyv1alpha1.LoadBalancerPolicy)
	case "Pod":
		return new(metav1.PartialObjectMetadata)
	}
	return nil
}

// read decodes objects; each gets a uid, generation 1 and, in the order of the file, a time of creation.
func read(t *testing.T, text []byte) (all []client.Object) {
	t.Helper()
	for i, document := range bytes.Split(append([]byte("\n"), text...), []byte("\n---")) {
		if len(bytes.TrimSpace(document)) == 0 {
			continue
		}
		var head metav1.TypeMeta
		if err := yaml.Unmarshal(document, &head); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		object := empty(head.Kind)
		if object == nil {
			t.Fatalf("no kind %q in\n%s", head.Kind, document)
		}
		if err := yaml.UnmarshalStrict(document, object); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		if object.GetNamespace() == "" && head.Kind != "GatewayClass" && head.Kind != "Namespace" {
			object.SetNamespace("default")
		}
		object.SetUID(object.GetUID() + "uid")
		object.SetGeneration(1)
		if created := object.GetCreationTimestamp(); created.IsZero() {
			object.SetCreationTimestamp(metav1.NewTime(now.Add(time.Duration(i-100) * time.Hour)))
		}
		all = append(all, object)
	}
	return all
}

// sections splits a golden file: what it is about, the objects, and the result.
func sections(t *testing.T, path string) (about, in, want string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	about, rest, ok := strings.Cut(string(text), "-- in.yaml --\n")
	if !ok {
		t.Fatalf("%s has no section in.yaml", path)
	}
	in, want, _ = strings.Cut(rest, "-- out.txt --\n")
	return about, in, want
}

// run translates until nothing changes, with a data path that applies every configuration, and checks what holds for all worlds.
func run(t *testing.T, options Options, objects []client.Object) (operator.Result, []client.Object) {
	t.Helper()
	const why = "node a: bad"
	first := options.Translate(world.New(now, objects...).With(nil, map[string]string{Plane: why}))
	for _, s := range first.Statuses {
		if g, ok := s.Apply().(*gatewayv1.Gateway); ok {
			for _, c := range g.Status.Conditions {
				if c.Type == programmed && c.Status == metav1.ConditionTrue {
					t.Errorf("Gateway %s is Programmed before the data path has applied anything", key(g))
				}
				if c.Type == programmed && c.Reason == "Pending" && !strings.Contains(c.Message, why) {
					t.Errorf("Gateway %s: %q does not say why the data path refuses it", key(g), c.Message)
				}
			}
		}
	}
	objects = apply(objects, first)
	applied := map[string]map[string]string{Plane: first.Configs[0].Pieces}
	result := options.Translate(world.New(now, objects...).With(applied, nil))
	if !reflect.DeepEqual(result.Configs, first.Configs) {
		t.Errorf("the configuration changed without a change of objects:\n%s\n%s", first.Configs[0].Text, result.Configs[0].Text)
	}
	objects = apply(objects, result)
	again := options.Translate(world.New(now.Add(time.Hour), objects...).With(applied, nil))
	for _, s := range again.Statuses {
		if !reflect.DeepEqual(s.Object, s.Apply()) {
			t.Errorf("%T %s is written again without a change:\n%+v\n%+v", s.Object, key(s.Object), s.Object, s.Apply())
		}
	}
	spec, _, err := config.Decode[lb.Spec]("rendered", result.Configs[0].Text)
	if err == nil {
		_, err = lb.Compile(spec, nil, lb.AllCaps())
	}
	if err != nil {
		t.Errorf("the load balancer refuses the configuration: %v\n%s", err, result.Configs[0].Text)
	}
	return again, objects
}

// apply replaces the objects whose status was written.
func apply(objects []client.Object, r operator.Result) (all []client.Object) {
	for _, object := range objects {
		for i := range r.Statuses {
			if s := &r.Statuses[i]; s.Object == object {
				object = s.Apply()
			}
		}
		all = append(all, object)
	}
	return all
}

// Every file of testdata is a world, and what is made of it: 40 faults with their conditions among them.
func TestGolden(t *testing.T) {
	base, err := os.ReadFile("testdata/base.yaml")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("testdata/*/*.txtar")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	options := Options{Pools: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/29"), netip.MustParsePrefix("2001:db8::/125")}}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			about, in, want := sections(t, path)
			objects := append(read(t, base), read(t, []byte(in))...)
			result, objects := run(t, options, objects)
			got := report(result, objects)
			if strings.Contains(path, "/faults/") && !strings.Contains(got, " False ") && !strings.Contains(got, "event ") {
				t.Error("a fault without a condition or an event")
			}
			if *update {
				if err := os.WriteFile(path, []byte(about+"-- in.yaml --\n"+in+"-- out.txt --\n"+got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != want {
				t.Errorf("%s\ngot\n%s\nwant\n%s", about, got, want)
			}
		})
	}
}

// report writes a result for people: the configuration, then statuses.
func report(r operator.Result, objects []client.Object) string {
	var b strings.Builder
	text, err := yaml.JSONToYAML(r.Configs[0].Text) // as people read it
	if err != nil {
		panic(err)
	}
	b.WriteString(strings.ReplaceAll(string(text), fmt.Sprintf("  maglev_size: %d\n", maglevSize(1)), ""))
	b.WriteString("---\n")
	line := func(indent string, all []metav1.Condition) {
		for _, c := range all {
			fmt.Fprintf(&b, "%s%s %s %s", indent, c.Type, c.Status, c.Reason)
			if c.Message != "" {
				fmt.Fprintf(&b, ": %s", c.Message)
			}
			b.WriteString("\n")
		}
	}
	parents := func(kind string, o client.Object, s *gatewayv1.RouteStatus) {
		fmt.Fprintf(&b, "%s %s\n", kind, key(o))
		for _, p := range s.Parents {
			fmt.Fprintf(&b, "  parent %s %s by %s\n", p.ParentRef.Name, section(&p.ParentRef), p.ControllerName)
			line("    ", p.Conditions)
		}
	}
	for _, object := range objects {
		switch o := object.(type) {
		case *gatewayv1.GatewayClass:
			if o.Name != "weir" {
				fmt.Fprintf(&b, "GatewayClass %s\n", o.Name)
				line("  ", o.Status.Conditions)
			}
		case *gatewayv1.Gateway:
			fmt.Fprintf(&b, "Gateway %s", key(o))
			for _, a := range o.Status.Addresses {
				fmt.Fprintf(&b, " %s", a.Value)
			}
			b.WriteString("\n")
			line("  ", o.Status.Conditions)
			for _, l := range o.Status.Listeners {
				fmt.Fprintf(&b, "  listener %s: %d kinds, %d routes\n", l.Name, len(l.SupportedKinds), l.AttachedRoutes)
				line("    ", l.Conditions)
			}
		case *gatewayv1.UDPRoute:
			parents("UDPRoute", o, &o.Status.RouteStatus)
		case *gatewayv1.TCPRoute:
			parents("TCPRoute", o, &o.Status.RouteStatus)
		case *corev1.Service:
			if o.Spec.Type == corev1.ServiceTypeLoadBalancer {
				fmt.Fprintf(&b, "Service %s", key(o))
				for _, i := range o.Status.LoadBalancer.Ingress {
					fmt.Fprintf(&b, " %s", i.IP)
				}
				b.WriteString("\n")
				line("  ", o.Status.Conditions)
			}
		case *policyv1alpha1.LoadBalancerPolicy:
			fmt.Fprintf(&b, "LoadBalancerPolicy %s", key(o))
			if o.Status.InForce != nil {
				fmt.Fprintf(&b, ", generation %d in force", o.Status.InForce.Generation)
			}
			b.WriteString("\n")
			for _, a := range o.Status.Ancestors {
				fmt.Fprintf(&b, "  target %s %s %s by %s\n", *a.AncestorRef.Kind, a.AncestorRef.Name, section(&a.AncestorRef), a.ControllerName)
				line("    ", a.Conditions)
			}
		}
	}
	for _, e := range r.Events {
		fmt.Fprintf(&b, "event on %s: %s: %s\n", key(e.Object), e.Reason, e.Note)
	}
	return b.String()
}
