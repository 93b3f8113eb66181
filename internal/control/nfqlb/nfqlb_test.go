package nfqlb

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// convert reads one text as the command does with one file.
func convert(name, text string) (string, []string, error) {
	var state State
	if err := state.Read(name, []byte(text)); err != nil {
		return "", nil, err
	}
	out, warnings, err := state.Configuration()
	return string(out), warnings, err
}

// What nfqlb 1.2.0 prints becomes the configuration that replaces it. WEIR_GOLDEN=1 writes the files again.
func TestGolden(t *testing.T) {
	for name, wantWarnings := range map[string][]string{
		"lb":     nil,
		"flowlb": {"flowlb.txt:16: no flow leads to Shm tshm-unused", "flowlb.txt:11: the table of Shm tshm-stream2 is not the one"},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("testdata", name+".txt"))
			if err != nil {
				t.Fatal(err)
			}
			out, warnings, err := convert(name+".txt", string(text))
			if err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", name+".yaml")
			if os.Getenv("WEIR_GOLDEN") != "" {
				if err := os.WriteFile(golden, []byte(out), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil || out != string(want) {
				t.Errorf("got\n%s\nwant\n%s %v", out, want, err)
			}
			if len(warnings) != len(wantWarnings) {
				t.Errorf("warnings %q", warnings)
			}
			for _, want := range wantWarnings {
				if !strings.Contains(strings.Join(warnings, "\n"), want) {
					t.Errorf("no warning %q in %q", want, warnings)
				}
			}
			spec, _, err := config.Decode[lb.Spec](golden, []byte(out))
			if err != nil {
				t.Fatal(err)
			}
			for _, warning := range spec.Warnings() {
				if strings.Contains(warning, "without index") {
					t.Error(warning)
				}
			}
		})
	}
}

func TestErrors(t *testing.T) {
	const pool = "Shm: a\n  Fw: own=0\n  Maglev: M=997, N=32\n   Lookup: 0 0...\n   Active: 1(0)\n"
	for _, c := range []struct{ name, text, want string }{
		{"unknown line", pool + "what\n", `in.txt:6: "what" is not a line of nfqlb show`},
		{"an old version", "Shm: a\n  Fw: own=0, offset=100\n", `in.txt:2: "Fw: own=0, offset=100" is not a line`},
		{"a mark without slot", "Shm: a\n  Active: 101 102\n", `in.txt:2: "Active: 101 102" is not a line`},
		{"before any Shm", "Fw: own=0\n", `in.txt:1: "Fw: own=0" is not a line`},
		{"cut off", "Shm: a\n  Fw: own=0\n", "in.txt:1: the output about Shm a has no line Maglev or Active"},
		{"twice", pool + pool, "in.txt:6: Shm a is there twice"},
		{"unknown key", pool + "[{\n \"name\": \"f\",\n \"colour\": 1\n}]\n", `unknown field "colour"`},
		{"not JSON", pool + "[{\n \"name\": \"f\",,\n}]\n", "in.txt:7: "},
		{"half a list", pool + "[{\n \"name\": \"f\"\n}", "the list ends in the middle"},
		{"unknown pool", pool + "[{\"name\": \"f\",\n \"user_ref\": \"b\"}]\n", `in.txt:7: flow "f" leads to Shm "b", which is not given; add the output of nfqlb show --shm=b`},
		{"no flows for two", pool + strings.Replace(pool, "Shm: a", "Shm: b", 1), "add the output of nfqlb flow-list"},
		{"two tiers", strings.Replace(pool, "=0\n", "=1\n", 1) + strings.NewReplacer("Shm: a", "Shm: b", "=0\n", "=2\n").Replace(pool), "in.txt:6: Shm b is a second one"},
		{"nothing", "", "no Shm with own=0"},
		{"bad prefix", pool + `[{"name": "f", "user_ref": "a", "dests": ["x"]}]`, `flow "f": "x" is not a prefix`},
		{"no mark", strings.Replace(pool, "1(0)", "0(0)", 1), "weir.yaml:"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, _, err := convert("in.txt", c.text)
			if err == nil || out != "" && !strings.HasPrefix(c.want, "weir.yaml") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("output %q, error %v; want %q", out, err, c.want)
			}
		})
	}
}
