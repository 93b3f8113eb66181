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

// One run reports what cannot be read and what cannot be meant, of every kind of file, and nothing that may only follow from
// another error.
func TestCheckReportsEverythingAtOnce(t *testing.T) {
	for kind, c := range map[string]struct {
		text string
		want []string
	}{
		kindBalancer: {`hash_kee: 1
services:
- name: a
  vips: [{address: 0.0.0.0, protocol: tcp, port: 80}, {address: 192.0.2.1, protocol: icmp, port: 99999}]
  health: {type: tcp, interval: 30, timeout: 20s}
  backends: [{name: a, address: 224.0.0.1, port: 99999, weight: -1}, {name: b, address: "[::1]"}]
- name: b
  vips: [{address: "2001:db8::1", protocol: tcp, port: 80}, {address: 192.0.2.7, protocol: tcp, port: 80}]
  backends: [{name: c, address: 10.0.0.1}, {name: d, address: 192.0.2.7}, {name: d, address: 10.0.0.2}]
- name: c
  vips: [{address: 192.0.2.8, protocol: tcp, port: 80}]
  backend: [{name: a, address: 10.0.0.1}]
`, []string{
			"1:1: hash_kee: unknown key", "4:20: services[0].vips[0].address: no packet", "4:86: services[0].vips[1].protocol", "4:98: services[0].vips[1].port",
			"5:33: services[0].health.interval: ", "6:33: services[0].backends[0].address: ", "6:50: services[0].backends[0].port: ", "6:65: services[0].backends[0].weight: ",
			"6:89: services[0].backends[1].address: ", "9:14: services[1].backends[0].address2: ", "9:63: services[1].backends[1].address: ", "9:82: services[1].backends[2].name: ",
			"12:3: services[2].backend: unknown key",
		}},
		kindGateway: {`realm: "` + strings.Repeat("r", 300) + `"
auth: {users: [{name: u, password: ""}, {name: ""}]}
listeners:
- {name: udp, address: 127.0.0.1, protocol: udp, routes: [no]}
- {name: udp, address: 127.0.0.1, protocol: quic}
clusters: [{name: c, endpoints: ["x y"], protocol: sctp}]
lifetimes: {default: 10}
quotas: {permissions: 10000, bursts: 1}
`, []string{
			"1:8: realm: ", "2:36: auth.users[0].password: ", "2:48: auth.users[1].name: ", "2:41: auth.users[1].password: ", "4:59: listeners[0].routes[0]: ",
			"5:3: listeners[1].port: ", "5:10: listeners[1].name: ", "5:45: listeners[1].protocol: ", "6:34: clusters[0].endpoints[0]: ", "6:52: clusters[0].protocol: ",
			"7:22: lifetimes.default: ", "8:23: quotas.permissions: ", "8:30: quotas.bursts: unknown key",
		}},
		kindSTUNner: {`version: v1
admin: {name: "a b", user_quota: -1}
auth: {type: static, credentials: {username: u}}
listeners:
- {name: udp, protocol: udp, address: 127.0.0.1, port: 99999}
`, []string{"3:22: auth.credentials: ", "5:56: listeners[0].port: "}},
		kindNode: {`listen: [nohost]
cid_length: 99
workers: -1
notify_interval: 500
psk_file: /does/not/exist
oscore: /does/not/exist
ticket_secrets: /does/not/exist
certificate: /does/not/exist
private_key: /does/not/exist
cluster: {nodes: [{id: 999, management: x}]}
`, []string{
			"1:10: listen[0]: ", "2:13: cid_length: ", "3:10: workers: ", "4:18: notify_interval: ", "5:11: psk_file: ", "6:9: oscore: ", "7:17: ticket_secrets: ", "8:14: certificate: ", "10:24: cluster.nodes[0].id: ", "10:41: cluster.nodes[0].management: ", "10:11: cluster.nodes: all are",
		}},
		kindScenarios: {`scenarios:
- {name: a, path: [{kind: no}], nodes: -1}
- {name: b, paths: []}
- {name: c, path: [{kind: aws-nat, ips: 9999}], traffic: {policy: no, rate: -1}}
`, []string{
			"2:27: scenarios[0].path[0].kind: ", "2:40: scenarios[0].nodes: ", "3:13: scenarios[1].paths: ", "4:41: scenarios[2].path[0].ips: ",
			"4:67: scenarios[2].traffic.policy: ", "4:77: scenarios[2].traffic.rate: ",
		}},
	} {
		file := filepath.Join(t.TempDir(), "w.yaml")
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, code := clitest.Weir(t, "check", file)
		for _, want := range c.want {
			if !strings.Contains(out, ":"+want) {
				t.Errorf("%s: no %s in\n%s", kind, want, out)
			}
		}
		if n := strings.Count(out, "weir: "); code != 1 || n != len(c.want) {
			t.Errorf("%s: exit code %d, %d errors instead of %d:\n%s", kind, code, n, len(c.want), out)
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
		{broken("devices.psk", "# devices\na=QUFBQUFBQUFBQUFBQUFBQQ==\nb=:0x4142434445464748494a4b4c4d4e4f50\n"), kindPSK, 0, "2 PSK, 0 raw public keys"},
		{broken("bad.psk", "a=QUFBQUFBQUFBQUFBQUFBQQ==\nb=!!\n"), kindPSK, 1, "bad.psk:2: the key is no base64"},
		{broken("oscore.yaml", "contexts:\n- {name: d7, master_secret: \"0102030405060708090a0b0c0d0e0f10\", sender_id: \"01\", recipient_id: \"02\"}\n"), kindOSCORE, 0, "contexts of OSCORE: d7"},
		{broken("bad-oscore.yaml", "contexts:\n- {name: d7, master_secret: \"0x\", sender_id: \"01\", recipient_id: \"02\"}\n- {id: 1}\n"), kindOSCORE, 1, ":3:4: contexts[1].id: unknown key"},
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
