package check

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/steering/lb"
)

func TestCheckReportsEverything(t *testing.T) {
	file := filepath.Join(t.TempDir(), "w.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// Keys and values that cannot be read.
	write(`hash_keyy: 1
services:
- name: a
  timeouts: {udp: 30}
  vips: [{address: 192.0.2.1, protocol: icmp, port: 99999}]
- name: b
  colour: red
`)
	out, code := clitest.Weir(t, "check", file)
	for _, want := range []string{":1:1: hash_keyy: unknown key", ":4:19: services[0].timeouts.udp: ", ":5:41: services[0].vips[0].protocol: ", ":5:53: services[0].vips[0].port: ", ":7:3: services[1].colour: unknown key"} {
		if !strings.Contains(out, "weir: "+file+want) {
			t.Errorf("no %s in\n%s", want, out)
		}
	}
	if code != 1 || strings.Count(out, "\n") != 5 {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	// What can be read and cannot be meant, in several services.
	write(`maglev_size: 12
services:
- name: a
  vips: [{address: 192.0.2.1, protocol: tcp, port: 80}, {address: 0.0.0.0, protocol: tcp, port: 80}]
  timeouts: {udp: 1ms}
  backends: [{name: a, address: 10.0.0.1}]
- name: a
  vips: [{address: 192.0.2.2, protocol: tcp, port: 80}]
  backends: [{name: a, address: 192.0.2.2}, {name: b}, {name: c, address: 10.0.0.3, weight: -1}]
`)
	out, code = clitest.Weir(t, "check", file, "--json")
	var result checkResult
	if err := clitest.ReadStrictly([]byte(out), &result); err != nil || code != 1 {
		t.Fatalf("exit code %d, %v: %s", code, err, out)
	}
	want := []string{"maglev_size: ", "services[0].vips[1].address: ", "services[0].timeouts.udp: ", "services[1].name: ", "services[1].backends[0].address: ", "services[1].backends[1].address: ", "services[1].backends[2].weight: "}
	if len(result.Errors) != len(want) || result.Error != result.Errors[0].Error {
		t.Fatalf("%d errors, want %d: %s", len(result.Errors), len(want), out)
	}
	for i, w := range want {
		if !strings.Contains(result.Errors[i].Error, w) {
			t.Errorf("error %d is %s, want %s", i, result.Errors[i].Error, w)
		}
	}
}

// Every kind of file is known by its keys and checked as the command that reads it does; -c FILE is FILE.
func TestCheckKnowsEveryKind(t *testing.T) {
	dir := t.TempDir()
	broken := func(name, text string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return file
	}
	for _, c := range []struct {
		file, kind string
		code       int
		want       string
	}{
		{"../../../examples/udp-nat.yaml", kindBalancer, 0, "BACKEND"},
		{"../../../examples/turn/loopback.yaml", kindGateway, 0, "turn"},
		{"../../../examples/turn/stunnerd.yaml", kindSTUNner, 0, "turn"},
		{"../../../examples/coap/node.yaml", kindNode, 0, "configuration of weir coap server: CoAP on 127.0.0.1:5783"},
		{"../../../examples/snat/churn.yaml", kindScenarios, 0, "scenarios of weir snat: closed by FIN"},
		{"../../../examples/tcp/kubernetes.yaml", kindKubernetes, 1, "kubectl apply --dry-run=server"},
		{broken("node.yaml", "listen: [\"127.0.0.1:5783\"]\ncid_length: 99\n"), kindNode, 1, ":2:13: cid_length: "},
		{broken("gateway.yaml", "auth: {mode: none}\nlisteners: []\n"), kindGateway, 1, ":2:1: listeners: there is none"},
		{broken("snat.yaml", "scenarios:\n- name: x\n  node: 3\n"), kindScenarios, 1, ":3:3: scenarios[0].node: unknown key"},
	} {
		out, code := clitest.Weir(t, "check", c.file)
		if code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%s: exit code %d, want %d, and %q in\n%s", c.file, code, c.code, c.want, out)
		}
		if again, code := clitest.Weir(t, "check", "-c", c.file); code != c.code || again != out {
			t.Errorf("-c %s: exit code %d\n%s", c.file, code, again)
		}
		out, _ = clitest.Weir(t, "check", "--json", c.file)
		var result checkResult
		if err := clitest.ReadStrictly([]byte(out), &result); err != nil || result.Kind != c.kind {
			t.Errorf("%s is of kind %q, want %q (%v)", c.file, result.Kind, c.kind, err)
		}
	}
	if out, code := clitest.Weir(t, "check", "-c", "a.yaml", "b.yaml"); code != 2 {
		t.Errorf("two files: exit code %d\n%s", code, out)
	}
}

func TestCheckKnowsGateways(t *testing.T) {
	for _, file := range []string{"gateway.yaml", "stunnerd.yaml", "loopback.yaml", "stun.yaml"} {
		result, err := checkFile("../../../examples/turn/"+file, lb.AllCaps())
		if err != nil || result.Gateway == nil || len(result.Gateway.Listeners) == 0 || result.Gateway.Listeners[0].URI == "" {
			t.Errorf("%s: %+v, %v", file, result, err)
		}
	}
}

func TestCheck(t *testing.T) {
	examples, err := filepath.Glob("../../../examples/*.yaml")
	if err != nil || len(examples) == 0 {
		t.Fatal(err)
	}
	const example = "../../../examples/coaps-cid.yaml"
	bad := "../../../internal/control/testdata/bad/vip-port-too-big.yaml"
	for _, c := range []struct {
		args []string
		code int
		want []string
	}{
		{[]string{"check", example}, 0, []string{"service coaps: nat, affinity cid", "dtls12 6 bytes, owner bits 0-7", "node2", "33.3%"}},
		{[]string{"check", example, "--datapath", "udp"}, 0, []string{"node2"}},
		{[]string{"check", example, "--json"}, 0, []string{`"ok": true`, `"datapath": "any"`, `"share": 0.33`}},
		{[]string{"check", "../../../examples/udp-nat.yaml"}, 0, []string{"warning: hash_key is not set"}},
		{[]string{"check", "../../../examples/web-l2dsr.yaml", "--datapath", "udp"}, cli.ExitFailure, []string{"cannot do mode l2dsr", "choose another --datapath"}},
		{[]string{"check", "../../../examples/nfqueue-flows.yaml", "--datapath", "nfqueue"}, 0, []string{
			"flow rule 1: outsiders priority 100: from 203.0.113.0/24", "sctp by ports", "without backend: mark 0x1", "lb1     0xc9  50.", "this one",
		}},
		{[]string{"check", "../../../examples/nfqlb-tier.yaml"}, 0, []string{"hashing: nfqlb with 9973 slots, sctp by ports, no conntrack", "9973, the prime below it"}},
		{[]string{"check", "../../../examples/nfqueue-flows.yaml", "--datapath", "udp"}, cli.ExitFailure, []string{"the data path udp", "choose another --datapath"}},
		{[]string{"check", bad}, cli.ExitFailure, []string{"vip-port-too-big.yaml:6:47: services[0].vips[0].port: \"70000\" is not a port"}},
		{[]string{"check", bad, "--json"}, cli.ExitFailure, []string{`"ok": false`, `"line": 6`, `"column": 47`}},
		{[]string{"check", "/does/not/exist"}, cli.ExitUsage, []string{"no such file"}},
		{[]string{"check"}, cli.ExitUsage, []string{"name it: weir check FILE"}},
		{[]string{"check", example, "--datapath", "dpdk"}, cli.ExitUsage, []string{"no data path"}},
	} {
		out, code := clitest.Weir(t, c.args...)
		if code != c.code {
			t.Errorf("%q: exit code %d, want %d\n%s", c.args, code, c.code, out)
		}
		for _, want := range c.want {
			if !strings.Contains(out, want) {
				t.Errorf("%q lacks %s:\n%s", c.args, want, out)
			}
		}
	}
}
