package doctor

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/datapath/nfqueue/rules"
	"github.com/weir-lb/weir/internal/finding"
)

// fake is an examiner over files of the test.
func fake(t *testing.T, files map[string]string) *examiner {
	t.Helper()
	e := &examiner{Config: Config{First: 0, Count: 2, Arguments: "-c w.yaml --queue 0:1"}, ctx: t.Context(), proc: t.TempDir(), names: []string{"eth0"}}
	e.flags = func(string) (uint32, error) { return 0, nil }
	e.force = func(int) error { return errors.New("operation not permitted") }
	for name, text := range files {
		write(t, filepath.Join(e.proc, name), text)
	}
	return e
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// one runs a check and wants one finding.
func one(t *testing.T, e *examiner, look func(*examiner) error) finding.Finding {
	t.Helper()
	e.Findings = nil
	if err := look(e); err != nil {
		t.Fatal(err)
	}
	if len(e.Findings) != 1 {
		t.Fatalf("%+v", e.Findings)
	}
	return e.Findings[0]
}

// What no namespace can show: limits of the whole machine, and cards that merge packets.
func TestReceiveBuffer(t *testing.T) {
	e := fake(t, map[string]string{"sys/net/core/rmem_max": "212992\n"})
	f := one(t, e, (*examiner).buffer)
	if f.Level != finding.Warn || f.Remedy != "sysctl -w net/core/rmem_max=4194304" || !strings.Contains(f.What, "208 KiB") {
		t.Errorf("%+v", f)
	}
	path, value, _ := strings.Cut(strings.TrimPrefix(f.Remedy, "sysctl -w "), "=")
	write(t, filepath.Join(e.proc, "sys", path), value)
	if f := one(t, e, (*examiner).buffer); f.Level != finding.OK {
		t.Errorf("after the remedy: %+v", f)
	}
	write(t, filepath.Join(e.proc, "sys", path), "1")
	e.force = func(int) error { return nil }
	if f := one(t, e, (*examiner).buffer); f.Level != finding.OK {
		t.Errorf("with the privilege: %+v", f)
	}
}

func TestLargeReceive(t *testing.T) {
	e := fake(t, nil)
	on := true
	e.flags = func(name string) (uint32, error) {
		if name == "eth0" && on {
			return flagLRO | 1, nil
		}
		return 1, nil
	}
	if f := one(t, e, (*examiner).largeReceive); f.Level != finding.Fail || f.Remedy != "ethtool -K eth0 lro off" {
		t.Errorf("%+v", f)
	}
	on = false
	if f := one(t, e, (*examiner).largeReceive); f.Level != finding.OK {
		t.Errorf("after the remedy: %+v", f)
	}
}

func TestParseQueues(t *testing.T) {
	all, err := parseQueues("    0  12345     3 2   512     7     9      100  1\n   65 4294963199 0 2 512 0 0 0 1\n")
	if err != nil || len(all) != 2 || all[0].dropped != 7 || all[0].userDropped != 9 || all[0].numbered != 100 || all[1].port != 4294963199 || all[1].number != 65 {
		t.Errorf("%v %+v", err, all)
	}
	for _, bad := range []string{"x\n", "1 2 3\n", "70000 1 1 1 1 1 1 1 1\n"} {
		if _, err := parseQueues(bad); err == nil {
			t.Errorf("%q is a queue", bad)
		}
	}
}

// Without a file or a queue in particular, every queue of the namespace is looked at.
func TestDropsOfAnyQueue(t *testing.T) {
	e := fake(t, map[string]string{"thread-self/net/netfilter/nfnetlink_queue": "    4  12345     3 2   512     7     0      100  1\n    5  12345     3 2   512     0     0      100  1\n"})
	e.Config = Config{}
	if f := one(t, e, (*examiner).drops); f.Level != finding.Warn || f.Remedy != "weir lb run -c FILE --datapath nfqueue --queue 4:5 --queue-length 16384" || !strings.Contains(f.What, "dropped 7 packets and took 100") {
		t.Errorf("%+v", f)
	}
	write(t, filepath.Join(e.proc, "thread-self/net/netfilter/nfnetlink_queue"), "    4  12345     3 2   512     0     0      0  1\n")
	if f := one(t, e, (*examiner).drops); f.Level != finding.OK {
		t.Errorf("%+v", f)
	}
}

func TestTracks(t *testing.T) {
	for rule, want := range map[string]bool{
		"-A FORWARD -m conntrack --ctstate NEW -j ACCEPT":  true,
		"-A PREROUTING -j CT --zone 5":                     true,
		"-A PREROUTING -j CT --notrack":                    false,
		"-A INPUT -m state --state NEW":                    true,
		"-A PREROUTING -p udp -j TPROXY --on-port 1":       true,
		"-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT":      false,
		`-A INPUT -m comment --comment "-m state" -j DROP`: false,
		"-A WEIR -j NFQUEUE --queue-num 2":                 false,
		"-A":                                               false,
	} {
		if got := tracks("filter", rules.Listed{Rule: rule}.Words()) != ""; got != want {
			t.Errorf("%s: %v", rule, got)
		}
	}
	if tracks("nat", nil) == "" {
		t.Error("the table nat does not track")
	}
}

func TestSetsMark(t *testing.T) {
	for rule, want := range map[string]uint32{
		"-A PREROUTING -j MARK --set-xmark 0x65/0xffffffff": 101,
		"-A PREROUTING -j MARK --set-mark 7":                7,
		"-A PREROUTING -j MARK --set-xmark 0x65/0xff":       0,
		"-A PREROUTING -j CONNMARK --set-xmark 0x65":        0,
		"-A PREROUTING -j MARK --set-xmark x":               0,
		"-A PREROUTING -j MARK":                             0,
	} {
		if got, _ := setsMark(rules.Listed{Rule: rule}.Words()); got != want {
			t.Errorf("%s: %d", rule, got)
		}
	}
}

func TestNFTTracking(t *testing.T) {
	got := nftTracking(`table inet t { # handle 1
	chain c { # handle 1
		type filter hook forward priority filter; policy accept;
		ct state new accept # handle 2
		tcp dport 22 accept # handle 3
	}
}
table ip nat { # handle 4
	chain POSTROUTING { # handle 1
		masquerade # handle 2
	}
}
`)
	if len(got) != 1 || got[0].delete() != "nft delete rule inet t c handle 2" {
		t.Errorf("%+v", got)
	}
}

func FuzzProc(f *testing.F) {
	f.Add("    0  12345     3 2   512     7     9      100  1\n")
	f.Add("table inet t { # handle 1\n\tchain c { # handle 1\n\t\tct state new # handle 2\n")
	f.Add("0000000079575691 12  4711       00000000 0        0        0     2        0        3111506\n")
	f.Fuzz(func(t *testing.T, text string) {
		if all, err := parseQueues(text); err == nil && len(all) > len(text) {
			t.Error("queues from nothing")
		}
		portSockets(text)
		for _, r := range nftTracking(text) {
			if r.chain == "" || r.table == "" {
				t.Errorf("%+v", r)
			}
		}
	})
}

// The command that serves queues with rules of a fast path names its interfaces.
func TestRunCommand(t *testing.T) {
	for arguments, want := range map[string]string{
		"-c w.yaml --queue 0:1 --interface eth0":                      "weir lb run -c w.yaml --datapath nfqueue --queue 0:1 --batch 1",
		"-c w.yaml --queue 0:1 --interface eth0,eth1 --unmarked=true": "weir lb run -c w.yaml --datapath nfqueue --queue 0:1 --interface eth0,eth1 --batch 1",
		"-c w.yaml --queue 0:1 --unmarked=true":                       "weir lb run -c w.yaml --datapath nfqueue --queue 0:1 --batch 1",
	} {
		e := &examiner{Config: Config{First: 0, Count: 2, Arguments: arguments}}
		if got := e.runCommand(nil, " --batch 1"); got != want {
			t.Errorf("%s: %s, want %s", arguments, got, want)
		}
	}
}
