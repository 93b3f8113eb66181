package turn_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/kube/turn"
	"github.com/weir-lb/weir/internal/kube/turn/turntest"
	"github.com/weir-lb/weir/internal/turn/stunnerd"
)

var update = flag.Bool("update", false, "write what Translate answers to the golden files")

var now = metav1.NewTime(time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC))

func options() turn.Options {
	return turn.Options{Controller: "stunner.l7mp.io/gateway-operator", Image: "weir:test", Discovery: "http://weir-operator.weir:13478", Endpoints: true, ClusterIPs: true}
}

// corpus calls run with each case of testdata: its file and its sections.
func corpus(t *testing.T, run func(t *testing.T, file string, a *turntest.Archive)) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) < 12 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			run(t, file, turntest.Parse(text))
		})
	}
}

// optionsOf are those of a case, whose comment changes some.
func optionsOf(a *turntest.Archive) turn.Options {
	o := options()
	o.Grants = strings.Contains(a.Comment, "option: grants")
	o.Endpoints = !strings.Contains(a.Comment, "option: no endpoints")
	o.Legacy = strings.Contains(a.Comment, "option: legacy")
	if strings.Contains(a.Comment, "option: class") {
		o.Class = "weir.dev/l4"
	}
	return o
}

func worldOf(t *testing.T, text string) *turn.World {
	t.Helper()
	w, err := turntest.World([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// Each case is a world and what it means.
func TestTranslate(t *testing.T) {
	corpus(t, func(t *testing.T, file string, a *turntest.Archive) {
		result := turn.Translate(worldOf(t, a.Section("world.yaml")), optionsOf(a), now)
		for _, section := range []struct{ name, text string }{
			{"configurations.yaml", configurations(t, result)}, {"objects.yaml", objects(t, result)}, {"status", status(result)}, {"events", events(result)},
		} {
			if section.name == "objects.yaml" && !strings.Contains(a.Comment, "with objects") {
				continue
			}
			if *update {
				a.Set(section.name, section.text)
			} else if want := a.Section(section.name); want != section.text {
				t.Errorf("%s is\n%s\nand should be\n%s", section.name, section.text, want)
			}
		}
		if *update {
			if err := os.WriteFile(file, a.Format(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// The gateway takes every configuration.
func TestTheGatewayTakesConfigurations(t *testing.T) {
	total := 0
	corpus(t, func(t *testing.T, _ string, a *turntest.Archive) {
		result := turn.Translate(worldOf(t, a.Section("world.yaml")), optionsOf(a), now)
		texts := map[string][]byte{}
		for name, c := range result.Configurations {
			text, err := json.Marshal(c)
			if err != nil {
				t.Fatal(err)
			}
			texts[name.String()] = text
		}
		for _, c := range result.ConfigMaps {
			texts["ConfigMap "+c.Namespace] = []byte(c.Data["stunnerd.conf"])
		}
		for name, text := range texts {
			file, _, warnings, err := config.DecodeForeign[stunnerd.Config](name, text)
			if err != nil || len(warnings) > 0 {
				t.Fatalf("%s: %v %v", name, err, warnings)
			}
			environment := map[string]string{"STUNNER_ADDR": "10.0.0.7", "STUNNER_NODE_ADDR": "192.0.2.9"}
			if _, err := file.Convert(func(key string) string { return environment[key] }); err != nil {
				t.Errorf("%s: %v\n%s", name, err, text)
			}
			total++
		}
	})
	if total < 10 {
		t.Errorf("%d configurations", total)
	}
}

// Translate reads no Secrets but those that Secrets names, which are few: another Secret, or one without a grant, is not among them.
func TestSecretsAreThoseThatTranslateReads(t *testing.T) {
	read, more := 0, 0
	corpus(t, func(t *testing.T, _ string, a *turntest.Archive) {
		o, w := optionsOf(a), worldOf(t, a.Section("world.yaml"))
		want := text(t, turn.Translate(w, o, now))
		few := *w
		few.Secrets = nil
		names := turn.Secrets(w, o)
		for _, s := range w.Secrets {
			if slices.Contains(names, types.NamespacedName{Namespace: s.Namespace, Name: s.Name}) {
				few.Secrets = append(few.Secrets, s)
				read++
			} else {
				more++
			}
		}
		if got := text(t, turn.Translate(&few, o, now)); got != want {
			t.Errorf("with the named Secrets alone:\n%s\nand with all\n%s", got, want)
		}
	})
	if read == 0 || more == 0 {
		t.Errorf("%d Secrets are read, %d are not: the inputs show nothing", read, more)
	}
}

// The order of lists means nothing, the world stays as it is, and what was applied is not applied again.
func TestTranslateIsStable(t *testing.T) {
	corpus(t, func(t *testing.T, _ string, a *turntest.Archive) {
		o := optionsOf(a)
		w, untouched := worldOf(t, a.Section("world.yaml")), worldOf(t, a.Section("world.yaml"))
		first := turn.Translate(w, o, now)
		if !reflect.DeepEqual(w, untouched) {
			t.Fatal("the world was changed")
		}
		reverse(untouched)
		if second := turn.Translate(untouched, o, now); text(t, second) != text(t, first) {
			t.Errorf("in another order:\n%s\nand before\n%s", text(t, second), text(t, first))
		}
		turntest.Apply(w, first)
		second := turn.Translate(w, o, metav1.NewTime(now.Add(time.Hour)))
		turntest.Apply(w, second) // what was created is served now
		third := turn.Translate(w, o, metav1.NewTime(now.Add(2*time.Hour)))
		if before, after := text(t, second)+fmt.Sprint(turntest.Times(second)), text(t, third)+fmt.Sprint(turntest.Times(third)); before != after {
			t.Errorf("applied and translated again:\n%s\nand before\n%s", after, before)
		}
	})
}

// reverse reverses every list of a world.
func reverse(w *turn.World) {
	v := reflect.ValueOf(w).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Slice {
			swap := reflect.Swapper(f.Interface())
			for j := range f.Len() / 2 {
				swap(j, f.Len()-1-j)
			}
		}
	}
}

func text(t *testing.T, r *turn.Result) string {
	return configurations(t, r) + objects(t, r) + status(r) + events(r)
}

func configurations(t *testing.T, r *turn.Result) string {
	all := map[string]any{}
	for name, c := range r.Configurations {
		all[name.String()] = c.Redacted()
	}
	for name := range r.Kept {
		all[name.String()] = "kept"
	}
	return toYAML(t, all)
}

func objects(t *testing.T, r *turn.Result) string {
	var all []string
	for _, o := range r.Services {
		all = append(all, "# Service\n"+toYAML(t, o))
	}
	for _, o := range r.Deployments {
		all = append(all, "# Deployment\n"+toYAML(t, o))
	}
	for _, o := range r.DaemonSets {
		all = append(all, "# DaemonSet\n"+toYAML(t, o))
	}
	for _, o := range r.ConfigMaps {
		all = append(all, "# ConfigMap\n"+toYAML(t, o))
	}
	for _, o := range r.Stay {
		all = append(all, fmt.Sprintf("# stays: %T %s/%s\n", o, o.GetNamespace(), o.GetName()))
	}
	return strings.Join(all, "---\n")
}

func toYAML(t *testing.T, value any) string {
	t.Helper()
	out, err := yaml.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	var kept [][]byte
	for line := range bytes.Lines(out) {
		if !slices.Contains([]string{"creationTimestamp: null", "status: {}", "loadBalancer: {}"}, string(bytes.TrimSpace(line))) {
			kept = append(kept, line)
		}
	}
	return string(bytes.Join(kept, nil))
}

func status(r *turn.Result) string {
	var out strings.Builder
	line := func(indent, name string, conditions []metav1.Condition) {
		fmt.Fprintf(&out, "%s%s\n", indent, name)
		for _, c := range conditions {
			fmt.Fprintf(&out, "%s  %s=%s %s: %s\n", indent, c.Type, c.Status, c.Reason, c.Message)
		}
	}
	for _, c := range r.Classes {
		line("", "GatewayClass "+c.Name, c.Status.Conditions)
	}
	for _, g := range r.Gateways {
		line("", fmt.Sprintf("Gateway %s/%s %s", g.Namespace, g.Name, addresses(g.Status.Addresses)), g.Status.Conditions)
		for _, l := range g.Status.Listeners {
			line("  ", fmt.Sprintf("%s: %d routes", l.Name, l.AttachedRoutes), l.Conditions)
		}
	}
	for _, ro := range r.Routes {
		fmt.Fprintf(&out, "UDPRoute (STUNner) %s/%s\n", ro.Namespace, ro.Name)
		for _, p := range ro.Status.Parents {
			line("  ", string(p.ParentRef.Name), p.Conditions)
		}
	}
	for _, ro := range r.StandardRoutes {
		fmt.Fprintf(&out, "UDPRoute %s/%s\n", ro.Namespace, ro.Name)
		for _, p := range ro.Status.Parents {
			line("  ", fmt.Sprintf("%s of %s", p.ParentRef.Name, p.ControllerName), p.Conditions)
		}
	}
	return out.String()
}

func events(r *turn.Result) string {
	var out strings.Builder
	for _, e := range r.Events {
		fmt.Fprintf(&out, "%s %s/%s %s: %s\n", e.Kind, e.Object.GetNamespace(), e.Object.GetName(), e.Reason, e.Message)
	}
	return out.String()
}

func addresses(all []gatewayv1.GatewayStatusAddress) string {
	var values []string
	for _, a := range all {
		values = append(values, fmt.Sprintf("%s=%s", *a.Type, a.Value))
	}
	return strings.Join(values, ",")
}
