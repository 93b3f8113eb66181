package conformance

import (
	"bytes"
	_ "embed"
	"io/fs"
	"maps"
	"slices"
	"testing"
	"testing/fstest"

	"sigs.k8s.io/gateway-api/conformance"
	"sigs.k8s.io/yaml"
)

// skips has the tests that Weir does not run, each with its reason.
//
//go:embed skip.yaml
var skips []byte

// base is the suite's base manifest without its Gateways: their listeners are HTTP and HTTPS, which a layer-4 controller refuses, and the
// suite would wait for them (gateway-api issue 2403).
func base(t *testing.T) []byte {
	text, err := conformance.Manifests.ReadFile("base/manifests.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var kept [][]byte
	gateways := 0
	for _, document := range bytes.Split(text, []byte("\n---\n")) {
		var head struct{ Kind string }
		if err := yaml.Unmarshal(document, &head); err != nil {
			t.Fatal(err)
		}
		if head.Kind == "Gateway" {
			gateways++
			continue
		}
		kept = append(kept, document)
	}
	if gateways == 0 {
		t.Fatal("the base manifest has no Gateways: use it as it is")
	}
	return bytes.Join(kept, []byte("\n---\n"))
}

// TestConformance runs the suite with the flags of the command line.
func TestConformance(t *testing.T) {
	reasons := map[string]string{}
	if err := yaml.UnmarshalStrict(skips, &reasons); err != nil {
		t.Fatal(err)
	}
	for name, reason := range reasons {
		if reason == "" {
			t.Errorf("%s is skipped without a reason", name)
		}
	}
	options := conformance.DefaultOptions(t)
	options.ManifestFS = []fs.FS{fstest.MapFS{"weir.yaml": {Data: base(t)}}, &conformance.Manifests}
	options.BaseManifests = "weir.yaml"
	options.SkipTests = slices.Sorted(maps.Keys(reasons))
	conformance.RunConformanceWithOptions(t, options)
}
