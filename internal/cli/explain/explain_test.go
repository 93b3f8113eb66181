package explain

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/steering/packet"
)

const explainSpec = `services:
- name: coaps
  vips: [{address: 192.0.2.1, protocol: udp, port: 5684}]
  cid: {protocols: [dtls12], layouts: [{length: 6, owner: {offset: 0, bits: 8}}]}
  backends:
  - {name: a, address: 10.1.0.1, port: 5684, nodes: [1]}
  - {name: b, address: 10.1.0.2, port: 5684, nodes: [2]}
`

// explainRun runs the command and returns its output and error.
func explainRun(t *testing.T, stdin []byte, args ...string) (string, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(file, []byte(explainSpec), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := newExplainCommand()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetIn(bytes.NewReader(stdin))
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(append([]string{file}, args...))
	err := cmd.Execute()
	return out.String(), err
}

func TestExplainPackets(t *testing.T) {
	const client = "udp 10.0.0.1:5000 > 192.0.2.1:5684"
	out, err := explainRun(t, nil,
		"-p", client+" 19fefd0001000000000007020a0b0c0d0e0004aabbccdd",
		"-p", "udp 10.1.0.2:5684 > 10.0.0.1:5000",
		"-p", "udp 10.0.0.1:5000 > 192.0.2.9:5684")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"forward coaps/b, reason cid", "names owner 2, which is backend b", "rewritten to 10.0.0.1:5000 > 10.1.0.2:5684",
		"forward coaps/b, reason reply", "rewritten to 192.0.2.1:5684 > 10.0.0.1:5000", "pass, reason not_service",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
}

// Flow rules, marks and the tier of the example, in words and in JSON.
func TestExplainRules(t *testing.T) {
	args := []string{"explain", "../../../examples/nfqueue-flows.yaml"}
	for _, p := range []string{
		"udp 203.0.113.7:5 > 10.96.0.1:80",
		"udp 10.0.0.1:9899 > 10.96.0.3:9899 0fa00b590000000100000000",
		"udp 10.0.0.1:4 > 10.97.0.1:9",
		"udp 10.0.0.3:4001 > 10.96.0.1:8042 payload=3000 id=4 frag=1400 piece=2",
	} {
		args = append(args, "-p", p)
	}
	for _, c := range []struct {
		more  []string
		wants []string
	}{
		{nil, []string{
			"drop denied, reason no_backend", "flow rule outsiders priority 100",
			"it carries SCTP inside of UDP", "sctp 10.0.0.1:4000 > 10.96.0.3:2905", "forward signalling/",
			"pass, reason not_service", "fwmark 0x2 (no_service_mark)",
			"forward to the tier's lb2, reason tier",
		}},
		{[]string{"--json"}, []string{`"rule": "m3ua"`, `"member": "lb2"`, `"mark": 202`, `"mark": 2`}},
	} {
		out, code := clitest.Weir(t, append(args, c.more...)...)
		if code != 0 {
			t.Fatal(code, out)
		}
		for _, want := range c.wants {
			if !strings.Contains(out, want) {
				t.Errorf("no %q in:\n%s", want, out)
			}
		}
	}
}

func TestExplainOverride(t *testing.T) {
	out, err := explainRun(t, nil, "--override", "coaps=drain", "-p", "udp 10.0.0.1:5000 > 192.0.2.1:5684")
	if err != nil || !strings.Contains(out, "reason no_backend") {
		t.Error(err, out)
	}
}

func TestExplainCapture(t *testing.T) {
	described, err := packet.ParseText("udp 10.0.0.1:5000 > 192.0.2.1:5684 payload=3000 id=9 frag=1400")
	if err != nil {
		t.Fatal(err)
	}
	file := binary.LittleEndian.AppendUint32(nil, 0xa1b2c3d4)
	file = append(file, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 101, 0, 0, 0)
	for _, i := range []int{1, 0, 2} { // the second fragment comes first
		p := described.Packets[i]
		file = append(file, 1, 0, 0, 0, 0, 0, 0, 0)
		file = binary.LittleEndian.AppendUint32(file, uint32(len(p)))
		file = binary.LittleEndian.AppendUint32(file, uint32(len(p)))
		file = append(file, p...)
	}
	out, err := explainRun(t, file, "--pcap", "-", "--json")
	if err != nil {
		t.Fatal(err)
	}
	var got v1.Explanation
	if err := clitest.ReadStrictly([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, r := range got.Packets {
		rows = append(rows, strings.Join([]string{string(rune('0' + r.Number)), r.Action, r.Reason}, " "))
	}
	want := "1 hold fragment_early, 2 forward maglev, 1 forward fragment, 3 forward fragment"
	if strings.Join(rows, ", ") != want || got.Summary.Packets != 3 {
		t.Errorf("%v\n%+v", rows, got.Summary)
	}
	if out, err := explainRun(t, file, "--pcap", "-", "--limit", "1"); err != nil || !strings.Contains(out, "and 3 more") {
		t.Error(err, out)
	}
	if _, err := explainRun(t, file[:len(file)-1], "--pcap", "-"); err == nil || !strings.Contains(err.Error(), "packet 3") {
		t.Error(err)
	}
}

func TestExplainRefuses(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "--packet"},
		{[]string{"-p", "udp 10.0.0.1:1 > 10.0.0.2:2", "--pcap", "x"}, "not both"},
		{[]string{"-p", "udp ::1:5 > [::2]:4"}, "[::1]:5"},
		{[]string{"-p", "udp 2001:db8:1:2:3:4:5:6:5684 > [::2]:4"}, "[2001:db8:1:2:3:4:5:6]:5684"},
		{[]string{"-p", "icmp 10.0.0.1:5 > 10.0.0.2"}, "has no ports"},
		{[]string{"-p", "udp 10.0.0.1 > 10.0.0.2:4"}, "10.0.0.1:5684"},
		{[]string{"-p", "udp 10.0.0.1:5 > [::1]:4"}, "different families"},
		{[]string{"-p", "udp 10.0.0.1:5 > 10.0.0.2:4 xyz"}, "neither hex payload"},
		{[]string{"-p", "udp 10.0.0.1:5 > 10.0.0.2:4 tttl=4"}, "unknown option"},
		{[]string{"-p", "udp 10.0.0.1:5 > 10.0.0.2:4 ttl=256"}, "0 to 255"},
		{[]string{"-p", "udp 10.0.0.1:5 > 10.0.0.2:4", "--override", "coaps/z=drain"}, "coaps/z"},
		{[]string{"-p", "udp 10.0.0.1:5 > 10.0.0.2:4", "--override", "coaps/a=fly"}, "drain"},
		{[]string{"--pcap", "/nonexistent"}, "no such file"},
	} {
		_, err := explainRun(t, nil, c.args...)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.args, err, c.want)
		}
	}
}
