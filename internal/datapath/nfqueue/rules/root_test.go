package rules

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// balancer is client, balancer and server in a row; the server has the VIPs.
func balancer(t *testing.T) *netlab.Lab {
	t.Helper()
	netlabtest.Root(t)
	netlabtest.Tools(t, "iptables", "ip6tables", "ip", "ping")
	lab := netlabtest.Up(t, netlab.Topology{
		Name: "nsrules",
		Namespaces: []netlab.Namespace{
			{Name: "client", Routes: netlab.Default("10.61.0.1", "fd61::1")},
			{Name: "lb", Forward: true, Routes: []netlab.Route{netlab.Via("10.96.0.0/24", "10.62.0.2"), netlab.Via("fd96::/64", "fd62::2")}},
			{
				Name: "server", Loopback: netlab.Prefixes("10.96.0.1/32", "10.96.0.2/32", "fd96::1/128", "fd96::2/128"),
				Routes: netlab.Default("10.62.0.1", "fd62::1"),
			},
		},
		Links: []netlab.Link{
			netlab.Cable("client eth0 10.61.0.2/24 fd61::2/64", "lb eth0 10.61.0.1/24 fd61::1/64"),
			netlab.Cable("lb eth1 10.62.0.1/24 fd62::1/64", "server eth0 10.62.0.2/24 10.62.0.3/24 10.62.0.4/24 fd62::2/64 fd62::3/64"),
		},
	})
	waitForRoutes(t, lab.Namespace("lb"))
	return lab
}

// waitForRoutes waits until the kernel has made all routes of its own. For IPv6 it does so some time after an address is
// there.
func waitForRoutes(t *testing.T, h *netlab.Host) {
	t.Helper()
	for deadline := time.Now().Add(60 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		out, err := h.Exec(t.Context(), "ip", "-6", "route", "show", "table", "all")
		if err != nil {
			t.Fatal(err)
		}
		missing := ""
		for dev, network := range map[string]string{"eth0": "fd61::", "eth1": "fd62::"} {
			for _, want := range []string{
				network + "/64 dev " + dev, "fe80::/64 dev " + dev, "local " + network + "1 dev " + dev, "anycast " + network + " dev " + dev,
				"anycast fe80:: dev " + dev, "multicast ff00::/8 dev " + dev,
			} {
				if !strings.Contains(out, want+" ") {
					missing = want
				}
			}
		}
		if missing == "" && strings.Count(out, "local fe80::") >= 2 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the kernel made no route %q:\n%s", missing, out)
		}
	}
}

// state is all that rules could change in a namespace, as a person would look at it.
func state(t *testing.T, h *netlab.Host) string {
	t.Helper()
	var all strings.Builder
	for _, line := range [][]string{
		{"iptables-save"},
		{"ip6tables-save"},
		{"ip", "rule"},
		{"ip", "-6", "rule"},
		{"ip", "route", "show", "table", "all"},
		{"ip", "-6", "route", "show", "table", "all"},
	} {
		text, err := h.Exec(t.Context(), line[0], line[1:]...)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&all, "== %s\n", strings.Join(line, " "))
		lines := strings.Split(text, "\n")
		if slices.Contains(line, "rule") {
			slices.Sort(lines) // those of one priority stand in the order of their making, which says nothing
		}
		for _, line := range lines {
			ownAddress := strings.Contains(line, " table local proto kernel ") // come and go as interfaces rise
			if !strings.HasPrefix(line, "#") && !ownAddress {                  // # holds the date
				line, _, _ = strings.Cut(line, " [") // packets that a chain has seen
				all.WriteString(line + "\n")
			}
		}
	}
	return all.String()
}

// shell runs lines in the namespace.
func shell(t *testing.T, h *netlab.Host, lines ...string) {
	t.Helper()
	if _, err := h.Exec(t.Context(), "sh", "-ec", strings.Join(lines, "\n")); err != nil {
		t.Fatal(err)
	}
}

// inNamespace runs Apply, Remove or Inspect in the namespace.
func inNamespace(t *testing.T, h *netlab.Host, f func(context.Context) ([]string, error)) (changes []string, err error) {
	t.Helper()
	err = h.Do(func() (err error) { changes, err = f(t.Context()); return err })
	return changes, err
}

func apply(t *testing.T, h *netlab.Host, p *Plan) []string {
	t.Helper()
	changes, err := inNamespace(t, h, func(ctx context.Context) ([]string, error) { return Apply(ctx, p) })
	if err != nil {
		t.Fatal(err)
	}
	return changes
}

func remove(t *testing.T, h *netlab.Host, c Config) []string {
	t.Helper()
	changes, err := inNamespace(t, h, func(ctx context.Context) ([]string, error) { return Remove(ctx, c) })
	if err != nil {
		t.Fatal(err)
	}
	return changes
}

// equal fails with the lines that differ.
func equal(t *testing.T, what, got, want string) {
	t.Helper()
	if got == want {
		return
	}
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for _, line := range w {
		if !slices.Contains(g, line) {
			t.Errorf("%s: lacks %s", what, line)
		}
	}
	for _, line := range g {
		if !slices.Contains(w, line) {
			t.Errorf("%s: has %s", what, line)
		}
	}
	if !t.Failed() {
		t.Errorf("%s: other order:\n%s\nwant:\n%s", what, got, want)
	}
}

// foreign are rules of somebody else that use the same tables.
func foreign() []string {
	return []string{
		"iptables -t mangle -A PREROUTING -p udp -m comment --comment 'somebody' -j MARK --set-xmark 0x7/0xffffffff",
		"iptables -t mangle -N WEIRD",
		"iptables -t mangle -A WEIRD -j NFQUEUE --queue-num 99",
		"iptables -A FORWARD -i eth9 -j DROP",
		"ip6tables -A FORWARD -i eth9 -j DROP",
		"ip6tables -t mangle -A PREROUTING -i eth9 -j ACCEPT",
		"ip rule add fwmark 7 lookup 7 priority 5",
		"ip route add 10.99.0.0/16 via 10.62.0.2 table 7",
		"ip -6 rule add fwmark 0x1000/0xff00 lookup 7 priority 6",
	}
}

// useOlder makes the names of iptables those of the older backend.
func useOlder(t *testing.T) {
	t.Helper()
	netlabtest.Tools(t, "iptables-legacy", "ip6tables-legacy")
	dir := t.TempDir()
	for _, family := range []string{"iptables", "ip6tables"} {
		for _, kind := range []string{"", "-save", "-restore"} {
			path, err := exec.LookPath(family + "-legacy" + kind)
			if err == nil {
				err = os.Symlink(path, filepath.Join(dir, family+kind))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func settings() Config { return Config{Count: 4, Interfaces: []string{"eth0"}, Local: true} }

// What is printed, typed into a shell, gives what Apply gives; twice is once; and Remove leaves no trace.
func TestRootPrintIsApplyAndRemoveLeavesNoTrace(t *testing.T) {
	for _, c := range []struct {
		name      string
		before    []string
		older     bool // the backend of iptables that is not nf_tables; its empty tables stay
		unmarked  bool
		fragments bool
	}{
		{"alone", nil, false, false, false},
		{"with others", foreign(), false, false, false},
		{"older backend", append(foreign(), "iptables -t filter -S", "ip6tables -t mangle -S"), true, false, true},
		{"behind a program", nil, false, true, false},
		{"fragments apart", nil, false, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.older {
				useOlder(t)
			}
			lab := balancer(t)
			settings := func() Config {
				s := settings()
				s.Unmarked, s.Fragments = c.unmarked, c.fragments
				return s
			}
			h, p := lab.Namespace("lb"), plan(t, twoServices, settings())
			if c.older {
				if out, err := h.Exec(t.Context(), "iptables", "-t", "mangle", "-S"); err != nil && strings.Contains(out, "Table does not exist") {
					t.Log("this kernel has dropped the older backend")
					return
				}
			}
			shell(t, h, c.before...)
			before := state(t, h)

			if changes := apply(t, h, p); len(changes) != len(p.Commands()) {
				t.Errorf("%d changes, %d commands", len(changes), len(p.Commands()))
			}
			applied := state(t, h)
			if applied == before {
				t.Fatal("nothing has changed")
			}
			if changes := apply(t, h, p); len(changes) != 0 {
				t.Errorf("the second time: %q", changes)
			}
			equal(t, "applied twice", state(t, h), applied)
			if changes := remove(t, h, settings()); len(changes) == 0 {
				t.Error("nothing was removed")
			}
			equal(t, "removed", state(t, h), before)
			if changes := remove(t, h, settings()); len(changes) != 0 {
				t.Errorf("removed twice: %q", changes)
			}

			shell(t, h, p.Commands()...)
			equal(t, "typed", state(t, h), strings.ReplaceAll(applied, `"weir:new"`, "weir"))
			if changes := apply(t, h, p); len(changes) != 0 {
				t.Errorf("after typing: %q", changes)
			}
		})
	}
}

// First and later fragments of both families go to their queue, whole packets to the other.
func TestRootFragmentsHaveAQueueOfTheirOwn(t *testing.T) {
	lab := balancer(t)
	h, client := lab.Namespace("lb"), lab.Namespace("client")
	apply(t, h, plan(t, twoServices, Config{Count: 2, Interfaces: []string{"eth0"}, Fragments: true}))
	for program, vip := range map[string]string{"iptables": "10.96.0.1", "ip6tables": "fd96::1"} {
		counts := func() (fragments, whole string) {
			out, err := h.Exec(t.Context(), program, "-w", "-t", "mangle", "-L", "WEIR", "-vnx")
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(out) {
				fields := strings.Fields(line)
				switch {
				case !strings.Contains(line, " "+vip+" "):
				case strings.HasSuffix(strings.TrimSpace(line), "num 1"):
					fragments = fields[0]
				default:
					whole = fields[0]
				}
			}
			return fragments, whole
		}
		for _, c := range []struct{ size, fragments, whole string }{{"3000", "3", "0"}, {"100", "3", "1"}} {
			if out, err := client.Exec(t.Context(), "ping", "-c", "1", "-W", "1", "-s", c.size, vip); err == nil {
				t.Errorf("no program serves the queues, yet %s answers:\n%s", vip, out)
			}
			if fragments, whole := counts(); fragments != c.fragments || whole != c.whole {
				t.Errorf("%s, %s bytes: %s packets to the fragments' queue, %s to the other; want %s, %s", vip, c.size, fragments, whole, c.fragments, c.whole)
			}
		}
	}
}

// Whatever part of it is there, Apply completes it and Remove takes it away.
func TestRootPartsAreCompletedAndRemoved(t *testing.T) {
	lab := balancer(t)
	h, p := lab.Namespace("lb"), plan(t, twoServices, settings())
	shell(t, h, foreign()...)
	before := state(t, h)
	apply(t, h, p)
	whole := state(t, h)
	for _, damage := range [][]string{
		{"iptables -t mangle -F WEIR"},
		{"iptables -t mangle -D WEIR 1", "ip6tables -t mangle -D PREROUTING 1"},
		{"iptables -t filter -D INPUT 1", "iptables -t filter -F WEIR", "iptables -t filter -D FORWARD 1", "iptables -t filter -D OUTPUT 1", "iptables -t filter -X WEIR"},
		{"ip rule del fwmark 101 lookup 101", "ip -6 rule del fwmark 102 lookup 102"},
		{"ip route flush table 101", "ip -6 route flush table 102"},
		{"ip rule add fwmark 55 lookup 55 priority 900 protocol 87", "ip route add 10.88.0.0/16 via 10.62.0.2 table 55 proto 87"},
		{"ip rule add fwmark 101 lookup 101 priority 1001 protocol 87"},
		{"iptables -t mangle -I PREROUTING 2 -i eth5 -m comment --comment weir -j WEIR"},
	} {
		shell(t, h, damage...)
		if state(t, h) == whole {
			t.Fatalf("%q did nothing", damage)
		}
		if changes := apply(t, h, p); len(changes) == 0 {
			t.Errorf("%q: nothing to repair", damage)
		}
		equal(t, strings.Join(damage, "; "), state(t, h), whole)
		shell(t, h, damage...)
		remove(t, h, settings())
		equal(t, "removed after "+strings.Join(damage, "; "), state(t, h), before)
		apply(t, h, p)
		equal(t, "applied again", state(t, h), whole)
	}
}

// Backends that come and go change their own routes, and nothing that carries others.
func TestRootChangedBackends(t *testing.T) {
	lab := balancer(t)
	h := lab.Namespace("lb")
	before := state(t, h)
	apply(t, h, plan(t, twoServices, settings()))
	changed := strings.NewReplacer("10.62.0.3", "10.62.0.4", "mark: 103", "mark: 104").Replace(twoServices)
	got := apply(t, h, plan(t, changed, settings()))
	want := []string{
		"ip route replace default via 10.62.0.4 table 102 proto 87",
		"ip route replace default via 10.62.0.4 table 104 proto 87",
		"ip rule add fwmark 104 lookup 104 priority 1000 protocol 87",
		"ip rule del fwmark 103 lookup 103 priority 1000 protocol 87",
		"ip route del default via 10.62.0.4 table 103 proto 87",
	}
	if !slices.Equal(got, want) {
		t.Errorf("changes:\n%s", strings.Join(got, "\n"))
	}
	other := lab.Namespace("lb")
	now := state(t, other)
	remove(t, h, settings())
	equal(t, "removed", state(t, h), before)
	apply(t, h, plan(t, changed, settings()))
	equal(t, "made at once", state(t, h), now)
}

// An error in the middle leaves what was there before: nothing, or the older plan.
func TestRootRollback(t *testing.T) {
	lab := balancer(t)
	h := lab.Namespace("lb")
	shell(t, h, foreign()...)
	good := plan(t, twoServices, settings())
	unreachable := plan(t, strings.ReplaceAll(twoServices, "10.62.0.4", "10.99.0.4"), settings())
	// A machine whose ip6tables can be read and not written.
	broken := t.TempDir()
	for name, text := range map[string]string{"ip6tables-restore": "#!/bin/sh\necho no room >&2\nexit 4\n"} {
		if err := os.WriteFile(filepath.Join(broken, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	path := os.Getenv("PATH")
	for _, round := range []string{"from nothing", "from an older plan"} {
		before := state(t, h)
		_, err := inNamespace(t, h, func(ctx context.Context) ([]string, error) { return Apply(ctx, unreachable) })
		if err == nil || !strings.Contains(err.Error(), "route of web/c: 10.99.0.4 is not on a link of this machine") {
			t.Errorf("%s: %v", round, err)
		}
		equal(t, round+", unreachable backend", state(t, h), before)

		next := plan(t, strings.NewReplacer("10.62.0.4", "10.62.0.2", "fd62::3", "fd62::2", "fd96::2", "fd96::1:2").Replace(twoServices), settings())
		t.Setenv("PATH", broken+":"+path)
		_, err = inNamespace(t, h, func(ctx context.Context) ([]string, error) { return Apply(ctx, next) })
		t.Setenv("PATH", path)
		if err == nil || !strings.Contains(err.Error(), "no room") {
			t.Errorf("%s: %v", round, err)
		}
		equal(t, round+", broken ip6tables", state(t, h), before)

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := h.Do(func() error { _, err := Apply(ctx, next); return err }); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", round, err)
		}
		equal(t, round+", interrupted", state(t, h), before)
		apply(t, h, good)
	}
}

// What is in the way is named, with what to do about it, and nothing is touched.
func TestRootCollisions(t *testing.T) {
	lab := balancer(t)
	h, p := lab.Namespace("lb"), plan(t, twoServices, settings())
	clean := state(t, h)
	for _, c := range []struct {
		make, want string
		unmake     []string
	}{
		{"ip rule add fwmark 0x65/0xff lookup 9 priority 50", "takes mark 101 of web/a to table 9 first", []string{"ip rule del priority 50"}},
		{"ip route add default via 10.62.0.2 table 102", "table 102 holds a route that is not ours: default via 10.62.0.2", []string{"ip route flush table 102"}},
		{"ip -6 route add fd99::/64 via fd62::2 table 101", "table 101 holds a route that is not ours: fd99::/64", []string{"ip -6 route flush table 101"}},
		{"iptables -t mangle -N WEIR; iptables -t mangle -A WEIR -j ACCEPT", "the chain WEIR of table mangle (IPv4) holds rules of others", []string{"iptables -t mangle -F WEIR", "iptables -t mangle -X WEIR"}},
		{"ip6tables -t raw -A PREROUTING -j NFQUEUE --queue-balance 3:5", "queue 3 is fed by another rule of table raw (IPv6)", []string{"ip6tables -t raw -F"}},
		{"iptables -t mangle -N WEIR; iptables -t mangle -A FORWARD -j WEIR", "leads to our chain: -A FORWARD -j WEIR", []string{"iptables -t mangle -F FORWARD", "iptables -t mangle -X WEIR"}},
	} {
		shell(t, h, c.make)
		before := state(t, h)
		if before == clean {
			t.Fatalf("%s did nothing", c.make)
		}
		_, err := inNamespace(t, h, func(ctx context.Context) ([]string, error) { return Apply(ctx, p) })
		var collision *CollisionError
		if !errors.As(err, &collision) || len(collision.Collisions) != 1 || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.make, err)
		}
		equal(t, c.make, state(t, h), before)
		if collision != nil {
			_, remedy, _ := strings.Cut(collision.Collisions[0], "remove it: ")
			shell(t, h, remedy)
			if rest, err := inNamespace(t, h, func(ctx context.Context) ([]string, error) { return Inspect(ctx, p) }); err != nil || len(rest) == 0 {
				t.Errorf("%s, after %s: %v", c.make, remedy, err)
			}
		}
		for _, line := range c.unmake {
			if _, err := h.Exec(t.Context(), "sh", "-c", line); err != nil {
				t.Logf("already gone: %s", line)
			}
		}
	}
	// A rule of others that says the same, or later, is not in the way.
	shell(t, h, "ip rule add fwmark 101 lookup 101 priority 10", "ip rule add fwmark 102 lookup 9 priority 2000")
	apply(t, h, p)
}

// While no program listens to the queue, a service with bypass answers and one without does not, in both families.
func TestRootFailOpenAndFailClosed(t *testing.T) {
	lab := balancer(t)
	h, client := lab.Namespace("lb"), lab.Namespace("client")
	answers := func(address string) bool {
		out, err := client.Exec(t.Context(), "ping", "-c", "3", "-i", "0.05", "-W", "2", address)
		return err == nil && strings.Contains(out, " 0% packet loss")
	}
	for _, vip := range []string{"10.96.0.1", "10.96.0.2", "fd96::1", "fd96::2"} {
		if !answers(vip) {
			t.Fatalf("%s does not answer before", vip)
		}
	}
	apply(t, h, plan(t, twoServices, settings()))
	for vip, want := range map[string]bool{"10.96.0.1": false, "10.96.0.2": true, "fd96::1": false, "fd96::2": true} {
		if got := answers(vip); got != want {
			t.Errorf("%s answers: %v, want %v", vip, got, want)
		}
	}
	remove(t, h, settings())
	for _, vip := range []string{"10.96.0.1", "fd96::1"} {
		if !answers(vip) {
			t.Errorf("%s does not answer after", vip)
		}
	}
}

// Packets with a mark go to its backend, and those with a reserved mark are answered.
func TestRootMarksAreRoutedAndRejected(t *testing.T) {
	netlabtest.Tools(t, "socat")
	lab := balancer(t)
	h, client := lab.Namespace("lb"), lab.Namespace("client")
	apply(t, h, plan(t, twoServices, Config{Interfaces: []string{"eth9"}})) // no queue in this test: marks come from elsewhere
	for mark, via := range map[string]string{"101": "10.62.0.2", "102": "10.62.0.3", "103": "10.62.0.4"} {
		out, err := h.Exec(t.Context(), "ip", "route", "get", "10.96.0.1", "mark", mark)
		if err != nil || !strings.Contains(out, "via "+via+" ") {
			t.Errorf("mark %s: %v %s", mark, err, out)
		}
	}
	if out, err := h.Exec(t.Context(), "ip", "route", "get", "fd96::1", "mark", "102"); err != nil || !strings.Contains(out, "via fd62::3 ") {
		t.Errorf("mark 102: %v %s", err, out)
	}
	shell(t, h, "iptables -t mangle -A PREROUTING -d 10.96.0.1 -j MARK --set-mark 2", "ip6tables -t mangle -A PREROUTING -d fd96::1 -j MARK --set-mark 3")
	for _, address := range []string{"TCP:10.96.0.1:80", "TCP:[fd96::1]:80"} {
		out, err := client.Exec(t.Context(), "socat", "-T", "10", "-", address+",connect-timeout=10")
		if err == nil || !strings.Contains(out, "Connection refused") {
			t.Errorf("%s: %v %s", address, err, out)
		}
	}
	for program, address := range map[string]string{"icmp-port-unreachable": "10.96.0.1", "icmp6-port-unreachable": "fd96::1"} {
		out, err := client.Exec(t.Context(), "ping", "-c", "2", "-W", "5", address)
		if err == nil || !strings.Contains(out, "Destination ") && !strings.Contains(out, "nreachable") {
			t.Errorf("%s: %v %s", program, err, out)
		}
	}
}
