package rules

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// twoServices has one service that fails open and one that does not, each with its own VIPs.
const twoServices = `
no_service_mark: 3
services:
- name: dns
  mode: mark
  bypass: true
  vips:
  - {address: 10.96.0.2, protocol: udp, port: 53}
  - {address: "fd96::2", protocol: udp, port: 53}
  backends:
  - {name: a, address: 10.62.0.2, address2: "fd62::2", mark: 101}
  - {name: b, address: 10.62.0.3, address2: "fd62::3", mark: 102}
- name: web
  mode: mark
  no_backend_mark: 2
  vips:
  - {address: 10.96.0.1, protocol: tcp, port: 80-443}
  - {address: "fd96::1", protocol: tcp, port: any}
  backends:
  - {name: a, address: 10.62.0.2, address2: "fd62::2", mark: 101}
  - {name: c, address: 10.62.0.4, mark: 103}
`

func compile(t testing.TB, text string) *lb.Snapshot {
	t.Helper()
	spec, _, err := config.Decode[lb.Spec]("weir.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	snapshot, err := lb.Compile(spec, nil, lb.AllCaps())
	if err != nil {
		t.Fatal(err)
	}
	return snapshot
}

func plan(t testing.TB, text string, c Config) *Plan {
	t.Helper()
	p, err := Make(compile(t, text), c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestCommands(t *testing.T) {
	p := plan(t, twoServices, Config{Count: 4, Interfaces: []string{"eth1", "eth0"}, Local: true})
	want := `
ip route add default via 10.62.0.2 table 101 proto 87
ip route add default via 10.62.0.3 table 102 proto 87
ip route add default via 10.62.0.4 table 103 proto 87
ip -6 route add default via fd62::2 table 101 proto 87
ip -6 route add default via fd62::3 table 102 proto 87
ip rule add fwmark 101 lookup 101 priority 1000 protocol 87
ip rule add fwmark 102 lookup 102 priority 1000 protocol 87
ip rule add fwmark 103 lookup 103 priority 1000 protocol 87
ip -6 rule add fwmark 101 lookup 101 priority 1000 protocol 87
ip -6 rule add fwmark 102 lookup 102 priority 1000 protocol 87
iptables -w -t filter -N WEIR
iptables -w -t filter -A WEIR -p tcp -m mark --mark 0x2 -m comment --comment "weir:no_backend_mark" -j REJECT --reject-with tcp-reset
iptables -w -t filter -A WEIR -m mark --mark 0x2 -m comment --comment "weir:no_backend_mark" -j REJECT --reject-with icmp-port-unreachable
iptables -w -t filter -A WEIR -p tcp -m mark --mark 0x3 -m comment --comment "weir:no_service_mark" -j REJECT --reject-with tcp-reset
iptables -w -t filter -A WEIR -m mark --mark 0x3 -m comment --comment "weir:no_service_mark" -j REJECT --reject-with icmp-port-unreachable
iptables -w -t filter -I OUTPUT 1 -m comment --comment weir -j WEIR
iptables -w -t filter -I FORWARD 1 -m comment --comment weir -j WEIR
iptables -w -t filter -I INPUT 1 -m comment --comment weir -j WEIR
ip6tables -w -t filter -N WEIR
ip6tables -w -t filter -A WEIR -p tcp -m mark --mark 0x2 -m comment --comment "weir:no_backend_mark" -j REJECT --reject-with tcp-reset
ip6tables -w -t filter -A WEIR -m mark --mark 0x2 -m comment --comment "weir:no_backend_mark" -j REJECT --reject-with icmp6-port-unreachable
ip6tables -w -t filter -A WEIR -p tcp -m mark --mark 0x3 -m comment --comment "weir:no_service_mark" -j REJECT --reject-with tcp-reset
ip6tables -w -t filter -A WEIR -m mark --mark 0x3 -m comment --comment "weir:no_service_mark" -j REJECT --reject-with icmp6-port-unreachable
ip6tables -w -t filter -I OUTPUT 1 -m comment --comment weir -j WEIR
ip6tables -w -t filter -I FORWARD 1 -m comment --comment weir -j WEIR
ip6tables -w -t filter -I INPUT 1 -m comment --comment weir -j WEIR
iptables -w -t mangle -N WEIR
iptables -w -t mangle -A WEIR -d 10.96.0.1/32 -m comment --comment "weir:web" -j NFQUEUE --queue-balance 0:3
iptables -w -t mangle -A WEIR -d 10.96.0.2/32 -m comment --comment "weir:dns" -j NFQUEUE --queue-balance 0:3 --queue-bypass
iptables -w -t mangle -I OUTPUT 1 -m comment --comment weir -j WEIR
iptables -w -t mangle -I PREROUTING 1 -i eth1 -m comment --comment weir -j WEIR
iptables -w -t mangle -I PREROUTING 1 -i eth0 -m comment --comment weir -j WEIR
ip6tables -w -t mangle -N WEIR
ip6tables -w -t mangle -A WEIR -d fd96::1/128 -m comment --comment "weir:web" -j NFQUEUE --queue-balance 0:3
ip6tables -w -t mangle -A WEIR -d fd96::2/128 -m comment --comment "weir:dns" -j NFQUEUE --queue-balance 0:3 --queue-bypass
ip6tables -w -t mangle -I OUTPUT 1 -m comment --comment weir -j WEIR
ip6tables -w -t mangle -I PREROUTING 1 -i eth1 -m comment --comment weir -j WEIR
ip6tables -w -t mangle -I PREROUTING 1 -i eth0 -m comment --comment weir -j WEIR
`
	if got := "\n" + strings.Join(p.Commands(), "\n") + "\n"; got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	if notes := p.Notes(); len(notes) != 1 || !strings.Contains(notes[0], "web/c has no IPv6 address") {
		t.Errorf("notes: %q", notes)
	}
}

// Behind a program that has marked packets, only the others are queued.
func TestUnmarked(t *testing.T) {
	jumps := 0
	for _, command := range plan(t, twoServices, Config{Interfaces: []string{"eth0"}, Local: true, Unmarked: true}).Commands() {
		if !strings.HasSuffix(command, "-j WEIR") {
			continue
		}
		jumps++
		if only := strings.Contains(command, "-m mark --mark 0x0 "); only != strings.Contains(command, "-t mangle") {
			t.Error(command)
		}
	}
	if jumps != 10 {
		t.Errorf("%d jumps", jumps)
	}
}

// With a queue of their own, fragments of both kinds go to the last queue, before any rule with ports, and whole packets to the others.
func TestFragmentQueue(t *testing.T) {
	for count, others := range map[int]string{2: "--queue-num 4", 4: "--queue-balance 4:6"} {
		var got []string
		for _, command := range plan(t, twoServices, Config{First: 4, Count: count, Fragments: true}).Commands() {
			if _, rule, ok := strings.Cut(command, "-A WEIR -d "); ok {
				got = append(got, rule)
			}
		}
		last := fmt.Sprintf("--queue-num %d", 3+count)
		want := []string{
			`10.96.0.1/32 -m u32 --u32 "0x4&0x3fff=0x1:0x3fff" -m comment --comment "weir:web" -j NFQUEUE ` + last,
			`10.96.0.1/32 -m comment --comment "weir:web" -j NFQUEUE ` + others,
			`10.96.0.2/32 -m u32 --u32 "0x4&0x3fff=0x1:0x3fff" -m comment --comment "weir:dns" -j NFQUEUE ` + last + ` --queue-bypass`,
			`10.96.0.2/32 -m comment --comment "weir:dns" -j NFQUEUE ` + others + ` --queue-bypass`,
			`fd96::1/128 -m frag -m comment --comment "weir:web" -j NFQUEUE ` + last,
			`fd96::1/128 -m comment --comment "weir:web" -j NFQUEUE ` + others,
			`fd96::2/128 -m frag -m comment --comment "weir:dns" -j NFQUEUE ` + last + ` --queue-bypass`,
			`fd96::2/128 -m comment --comment "weir:dns" -j NFQUEUE ` + others + ` --queue-bypass`,
		}
		if !slices.Equal(got, want) {
			t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// One address, two services: what can be distinguished by port fails open, the rest does not.
func TestMixedAddress(t *testing.T) {
	p := plan(t, `
services:
- name: a
  mode: mark
  bypass: true
  vips: [{address: 10.96.0.1, protocol: udp, port: 53}, {address: 10.96.0.1, protocol: tcp, port: 8000-8010}, {address: 10.96.0.0/24, protocol: tcp, port: any}]
  backends: [{name: x, mark: 101}]
- name: b
  mode: mark
  vips: [{address: 10.96.0.1, protocol: tcp, port: 80}]
  backends: [{name: y, mark: 102}]
`, Config{First: 7})
	want := []string{
		`-A WEIR -d 10.96.0.1/32 -p tcp -m tcp --dport 8000:8010 -m comment --comment "weir:a" -j NFQUEUE --queue-num 7 --queue-bypass`,
		`-A WEIR -d 10.96.0.1/32 -p udp -m udp --dport 53 -m comment --comment "weir:a" -j NFQUEUE --queue-num 7 --queue-bypass`,
		`-A WEIR -d 10.96.0.1/32 -m comment --comment weir -j NFQUEUE --queue-num 7`,
		`-A WEIR -d 10.96.0.0/24 -m comment --comment "weir:a" -j NFQUEUE --queue-num 7 --queue-bypass`,
	}
	if got := p.chains[familyTable{IPv4, "mangle"}].rules; !slices.Equal(got, want) {
		t.Errorf("got:\n%s", strings.Join(got, "\n"))
	}
	if got := p.Families(); !slices.Equal(got, []Family{IPv4}) {
		t.Errorf("families: %v", got)
	}
	notes := strings.Join(p.Notes(), "\n")
	for _, want := range []string{"a/x has no address: routing rule and route of mark 101 are yours", "10.96.0.1/32 has services that fail open and others that do not"} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes lack %q:\n%s", want, notes)
		}
	}
}

// The other balancers of a tier are reached like backends.
func TestTier(t *testing.T) {
	p := plan(t, `
tier:
  self: one
  members:
  - {name: one, mark: 201, address: 10.61.0.11}
  - {name: two, mark: 202, address: 10.61.0.12, address2: "fd61::12"}
  - {name: three, mark: 203}
services:
- name: s
  mode: mark
  vips: [{address: 10.96.0.1, protocol: udp, port: 53}]
  backends: [{name: a, address: 10.62.0.2, mark: 101}]
`, Config{})
	want := []Route{
		{IPv4, 101, netip.MustParseAddr("10.62.0.2"), "s/a"},
		{IPv4, 202, netip.MustParseAddr("10.61.0.12"), "tier/two"},
		{IPv6, 202, netip.MustParseAddr("fd61::12"), "tier/two"},
	}
	if got := p.Routes(); !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
	if _, left := p.Marks(); len(left) != 1 || left[203] != "tier/three" {
		t.Errorf("left: %v", left)
	}
}

// Flow rules are queued by their destinations; one without wants to see everything.
func TestFlowRules(t *testing.T) {
	const spec = `
services:
- name: a
  mode: mark
  bypass: true
  flows:
  - {name: signalling, protocols: [sctp], destinations: [10.96.0.0/24, "fd96::/64"], destination_ports: [2905], udp_encap: 9899}
  backends: [{name: x, address: 10.62.0.2, mark: 101}]
- name: b
  mode: mark
  flows:
  - {name: web, protocols: [tcp], destinations: [10.96.0.0/24], destination_ports: [80, 8000-8010]}
  backends: [{name: y, address: 10.62.0.3, mark: 102}]
`
	p := plan(t, spec, Config{})
	want := []string{
		`-A WEIR -d 10.96.0.0/24 -p udp -m comment --comment "weir:a" -j NFQUEUE --queue-num 0 --queue-bypass`,
		`-A WEIR -d 10.96.0.0/24 -p sctp -m sctp --dport 2905 -m comment --comment "weir:a" -j NFQUEUE --queue-num 0 --queue-bypass`,
		`-A WEIR -d 10.96.0.0/24 -m comment --comment weir -j NFQUEUE --queue-num 0`,
	}
	if got := p.chains[familyTable{IPv4, "mangle"}].rules; !slices.Equal(got, want) {
		t.Errorf("IPv4:\n%s", strings.Join(got, "\n"))
	}
	want = []string{`-A WEIR -d fd96::/64 -m comment --comment "weir:a" -j NFQUEUE --queue-num 0 --queue-bypass`}
	if got := p.chains[familyTable{IPv6, "mangle"}].rules; !slices.Equal(got, want) {
		t.Errorf("IPv6:\n%s", strings.Join(got, "\n"))
	}

	everything := strings.Replace(spec, ", destinations: [10.96.0.0/24], destination_ports: [80, 8000-8010]", "", 1)
	if _, err := Make(compile(t, everything), Config{}); err == nil || !strings.Contains(err.Error(), "service b wants packets to any address") || !strings.Contains(err.Error(), "--interface") {
		t.Errorf("a rule for everything: %v", err)
	}
	p = plan(t, everything, Config{Interfaces: []string{"eth0"}})
	all := p.chains[familyTable{IPv6, "mangle"}].rules
	if last := all[len(all)-1]; last != `-A WEIR -m comment --comment "weir:b" -j NFQUEUE --queue-num 0` {
		t.Errorf("the last rule: %s", last)
	}
}

func TestWhatCannotBe(t *testing.T) {
	const service = `
services:
- name: s
  mode: mark
  vips: [{address: 10.96.0.1, protocol: udp, port: 53}]
  backends: [{name: a, address: 10.62.0.2, mark: `
	nat := `
services:
- name: s
  vips: [{address: 10.96.0.1, protocol: udp, port: 53}]
  backends: [{name: a, address: 10.62.0.2}]
`
	shared := service + `101}]
- name: t
  mode: mark
  vips: [{address: 10.96.0.2, protocol: udp, port: 53}]
  backends: [{name: b, address: 10.62.0.9, mark: 101}]
`
	for _, c := range []struct {
		text   string
		config Config
		want   string
	}{
		{service + "254}]\n", Config{}, "s/a: table 254 of mark 254 is the system's own"},
		{service + "100}]\n", Config{TableBase: 155}, "table 255 of mark 100"},
		{service + "4294967295}]\n", Config{TableBase: 155}, "smaller table base"},
		{shared, Config{}, "s/a and t/b share mark 101"},
		{nat, Config{}, "no service has mode mark"},
		{service + "1}]\n  no_backend_mark: 1\n", Config{}, "no_backend_mark 1 is the mark of s/a too"},
		{service + "1}]\n", Config{Chain: "INPUT"}, "iptables has its own"},
		{service + "1}]\n", Config{Chain: "a b"}, "chain"},
		{service + "1}]\n", Config{Priority: 32766}, "priority 32766"},
		{service + "1}]\n", Config{Protocol: 2}, "protocol 2"},
		{service + "1}]\n", Config{First: 65535, Count: 2}, "queues 65535 to 65536"},
		{service + "1}]\n", Config{First: 3, Fragments: true}, "give two or more queues, such as 3:4"},
		{service + "1}]\n", Config{Interfaces: []string{"eth0;reboot"}}, "interface"},
	} {
		if _, err := Make(compile(t, c.text), c.config); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v, want %q", c.config, err, c.want)
		}
	}
}

func TestSplit(t *testing.T) {
	rule := `-A PREROUTING -i eth0 -m comment --comment "weir:a \"b\" \\ c" -j WEIR`
	want := []string{"-A", "PREROUTING", "-i", "eth0", "-m", "comment", "--comment", `weir:a "b" \ c`, "-j", "WEIR"}
	if got := split(rule); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if !isOurs(rule) || isOurs(`-A WEIR -m comment --comment "weird" -j ACCEPT`) || isOurs("-A WEIR") || isOurs(`-A WEIR -m comment --comment`) {
		t.Error("whose rule is it?")
	}
}

func FuzzSaved(f *testing.F) {
	f.Add("# x\n*mangle\n:PREROUTING ACCEPT [0:0]\n:WEIR - [0:0]\n-A PREROUTING -i eth0 -m comment --comment weir -j WEIR\n-A WEIR -d 10.96.0.1/32 -j NFQUEUE --queue-balance 0:3\nCOMMIT\n")
	f.Add("*filter\n-A \"\n-A X --comment \"a\\\nCOMMIT")
	f.Add(":x")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parseSaved(text)
		if err != nil {
			return
		}
		for _, table := range s.tables {
			table.jumpsTo("WEIR")
			table.of("WEIR")
			for _, rule := range table.rules {
				isOurs(rule)
				if first, last, ok := queuesOf(rule); ok && first == last && first != 0 && !strings.Contains(rule, "--queue") {
					t.Errorf("queue %d of %q", first, rule)
				}
			}
		}
	})
}
