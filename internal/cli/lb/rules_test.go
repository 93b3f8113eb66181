package lb

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

const markExample = "../../../examples/nfqueue-rules.yaml"

func TestLBRulesPrint(t *testing.T) {
	out, err := clitest.Execute(t, "lb", "rules", "-c", markExample, "--queue", "0:3", "--interface", "eth0,eth1", "--table-base", "1000")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"ip route add default via 10.62.0.2 table 1101 proto 87\n",
		`ip6tables -w -t mangle -A WEIR -d fd96::1/128 -m comment --comment "weir:web" -j NFQUEUE --queue-balance 0:3` + "\n",
		"iptables -w -t mangle -I PREROUTING 1 -i eth1 ",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%s lacks %s", out, want)
		}
	}
	for line, want := range map[string]string{
		"lb rules":                                                "name it: weir lb rules FILE",
		"lb rules -c x.yaml --queue 3:1":                          "--queue",
		"lb rules -c x.yaml --queue a":                            "--queue",
		"lb rules -c x.yaml --queue 65536":                        "--queue",
		"lb rules -c no-such.yaml":                                "no-such.yaml",
		"lb rules -c x.yaml --apply --print":                      "exclude each other",
		"lb rules -c ../../../examples/coaps-cid.yaml":            "no service has mode mark",
		"lb rules --chain OUTPUT -c " + markExample:               "iptables has its own",
		"lb rules -c " + markExample + " --table-base 4294967200": "smaller table base",
	} {
		_, err := clitest.Execute(t, strings.Fields(line)...)
		var exit *cli.ExitError
		if !errors.As(err, &exit) || exit.Code != cli.ExitUsage || !strings.Contains(err.Error(), want) {
			t.Errorf("weir %s: got %v, want a usage error with %q", line, err, want)
		}
	}
}

func TestRootLBRulesApplyAndRemove(t *testing.T) {
	netlabtest.Tools(t, "iptables", "ip6tables")
	lab := netlabtest.Up(t, netlab.Topology{
		Name:       "nslbrules",
		Namespaces: []netlab.Namespace{{Name: "lb"}, {Name: "server"}},
		Links:      []netlab.Link{netlab.Cable("lb eth0 10.62.0.1/24 fd62::1/64", "server eth0 10.62.0.2/24 fd62::2/64")},
	})
	rules := func(args ...string) (report struct {
		Commands []string `json:"commands"`
		Notes    []string `json:"notes"`
		Changed  bool     `json:"changed"`
	},
	) {
		t.Helper()
		var out string
		if err := lab.Namespace("lb").Do(func() (err error) {
			out, err = clitest.Execute(t, append([]string{"lb", "rules", "--json"}, args...)...)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(out, "null") {
			t.Errorf("a list is null: %s", out)
		}
		if err := json.Unmarshal([]byte(out), &report); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return report
	}
	if r := rules("-c", markExample, "--apply"); !r.Changed || len(r.Commands) < 20 {
		t.Errorf("applied: %+v", r)
	}
	if r := rules("-c", markExample, "--apply"); r.Changed || len(r.Commands) != 0 {
		t.Errorf("applied again: %+v", r)
	}
	absent := "interface eth9 is not there now"
	if r := rules("-c", markExample, "--apply", "-i", "eth0,eth9,veth+"); len(r.Notes) != 1 || !strings.Contains(r.Notes[0], absent) {
		t.Errorf("applied for an interface that is not there: notes %q, want one with %q", r.Notes, absent)
	}
	if r := rules("-c", markExample, "--apply", "-i", "eth0"); len(r.Notes) != 0 || !r.Changed {
		t.Errorf("applied for an interface that is there: %+v", r)
	}
	if r := rules("--remove"); !r.Changed {
		t.Errorf("removed: %+v", r)
	}
	if r := rules("--remove"); r.Changed {
		t.Errorf("removed again: %+v", r)
	}
}
