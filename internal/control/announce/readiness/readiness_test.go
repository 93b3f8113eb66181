package readiness

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/control/announce/vrrp"
	"github.com/weir-lb/weir/internal/finding"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// What no namespace can show: a kernel without TCP MD5, or one that must not use it. This kernel takes a key.
func TestKernelsWithoutMD5(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{"192.0.2.1", "2001:db8::1"} {
		neighbour := lb.Neighbour{Address: netip.MustParseAddr(address), Port: 179, PasswordFile: file}
		for _, c := range []struct {
			md5   func(*lb.Neighbour) error
			level finding.Level
			what  string
		}{
			{tryMD5, finding.OK, "the passwords can be read"},
			{func(*lb.Neighbour) error { return unix.ENOPROTOOPT }, finding.Fail, "no TCP MD5"},
			{func(*lb.Neighbour) error { return unix.EINVAL }, finding.Fail, "refuses TCP MD5 for neighbour " + address},
		} {
			e := &examination{Config: Config{Announce: &lb.Announce{BGP: &lb.BGP{Neighbours: []lb.Neighbour{neighbour}}}}, md5: c.md5}
			if err := e.passwords(); err != nil {
				t.Fatal(err)
			}
			if len(e.Findings) != 1 || e.Findings[0].Level != c.level || !strings.Contains(e.Findings[0].What, c.what) ||
				(e.Findings[0].Remedy == "") != (c.level == finding.OK) {
				t.Errorf("%s: %+v, want %q", address, e.Findings, c.what)
			}
		}
	}
}

// A password in the environment is that of the service, so its absence here is a warning.
func TestPasswordOfTheEnvironment(t *testing.T) {
	neighbour := lb.Neighbour{Address: netip.MustParseAddr("192.0.2.1"), PasswordEnv: "WEIR_TEST_PASSWORD"}
	e := &examination{Config: Config{Announce: &lb.Announce{BGP: &lb.BGP{Neighbours: []lb.Neighbour{neighbour}}}}, md5: tryMD5}
	err := e.passwords()
	if err != nil || len(e.Findings) != 1 || e.Findings[0].Level != finding.Warn || !strings.Contains(e.Findings[0].Remedy, neighbour.PasswordEnv) {
		t.Errorf("%+v, %v", e.Findings, err)
	}
	t.Setenv("WEIR_TEST_PASSWORD", "secret")
	e.Findings = nil
	if err := e.passwords(); err != nil || len(e.Findings) != 1 || e.Findings[0].Level != finding.OK {
		t.Errorf("%+v, %v", e.Findings, err)
	}
}

// A program that is not seen may be weir in a container, so it is a warning.
func TestPortOfAnUnknownProgram(t *testing.T) {
	e := &examination{proc: t.TempDir(), Config: Config{Announce: &lb.Announce{BGP: &lb.BGP{Neighbours: []lb.Neighbour{{BFD: lb.BFD{Multiplier: 3}}}}}}}
	dir := filepath.Join(e.proc, "thread-self/net")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for text, level := range map[string]finding.Level{
		"1: 00000000:0EC8 00000000:0000 07 00000000:00000000 00:00000000 00000000 0 0 4711 2 0 0\n": finding.Warn,
		"1: 00000000:0EC9 00000000:0000 07 00000000:00000000 00:00000000 00000000 0 0 4711 2 0 0\n": finding.OK,
	} {
		if err := os.WriteFile(filepath.Join(dir, "udp"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		e.Findings = nil
		if err := e.bfd(); err != nil || len(e.Findings) != 1 || e.Findings[0].Level != level {
			t.Errorf("%s: %+v, %v", text, e.Findings, err)
		}
	}
}

// Nothing is announced: nothing is examined.
func TestNothingAnnounced(t *testing.T) {
	for _, a := range []*lb.Announce{nil, {}} {
		if all, err := Examine(t.Context(), Config{Announce: a, Privilege: errors.New("none")}); err != nil || len(all) > 0 {
			t.Errorf("%+v, %v", all, err)
		}
	}
}

func TestOtherHost(t *testing.T) {
	for prefix, want := range map[string]string{
		"192.0.2.6/24": "192.0.2.7", "192.0.2.254/24": "192.0.2.253", "192.0.2.1/30": "192.0.2.2", "192.0.2.0/31": "192.0.2.1",
		"192.0.2.1/31": "192.0.2.0", "192.0.2.1/32": "", "255.255.255.254/30": "255.255.255.253",
	} {
		ip, network, err := net.ParseCIDR(prefix)
		if err != nil {
			t.Fatal(err)
		}
		network.IP = ip
		_, got := otherHost(network)
		if want == "" && got.IsValid() || want != "" && got.String() != want {
			t.Errorf("%s: %s, want %s", prefix, got, want)
		}
	}
}

// advertisementFrame is an advertisement in a frame with padding.
func advertisementFrame(a vrrp.Advertisement, from netip.Addr, hopLimit uint8) []byte {
	message, to := a.Append(nil, from), vrrp.Group(from.Is6())
	frame := make([]byte, ethernet)
	if from.Is4() {
		frame = append(frame, 0x45, 0, 0, uint8(20+len(message)), 0, 0, 0, 0, hopLimit, vrrp.Protocol, 0, 0)
	} else {
		frame = append(frame, 0x60, 0, 0, 0, 0, uint8(len(message)), vrrp.Protocol, hopLimit)
	}
	frame = append(append(frame, from.AsSlice()...), to.AsSlice()...)
	return append(append(frame, message...), make([]byte, 9)...)
}

// What another machine advertises is as it should be, or a finding.
func TestJudgement(t *testing.T) {
	addresses := func(texts ...string) (all []netip.Addr) {
		for _, text := range texts {
			all = append(all, netip.MustParseAddr(text))
		}
		return all
	}
	ours := &lb.VRRP{Interface: "eth0", ID: 51, Addresses: addresses("192.0.2.10", "192.0.2.11", "fe80::1", "2001:db8::10")}
	good := vrrp.Advertisement{ID: 51, Priority: 100, Interval: vrrp.Step}
	for name, c := range map[string]struct {
		from      string
		addresses []netip.Addr
		hopLimit  uint8
		change    func(message []byte)
		want      string // of the finding; empty: none
	}{
		"alike":               {"192.0.2.2", addresses("192.0.2.11", "192.0.2.10"), 255, nil, ""},
		"alike, IPv6":         {"fe80::2", addresses("fe80::1", "2001:db8::10"), 255, nil, ""},
		"others' addresses":   {"192.0.2.2", addresses("192.0.2.12"), 255, nil, "with the addresses [192.0.2.12], not [192.0.2.10 192.0.2.11]"},
		"a link-local less":   {"fe80::2", addresses("2001:db8::10"), 255, nil, "with the addresses [2001:db8::10], not [fe80::1 2001:db8::10]"},
		"from another router": {"192.0.2.2", addresses("192.0.2.10", "192.0.2.11"), 254, nil, "with TTL 254"},
		"version 2":           {"192.0.2.2", addresses("192.0.2.10", "192.0.2.11"), 255, func(b []byte) { b[0] = 0x21 }, "in version 2 of VRRP"},
		"a wrong checksum":    {"192.0.2.2", addresses("192.0.2.10", "192.0.2.11"), 255, func(b []byte) { b[6]++ }, "refused: wrong checksum"},
	} {
		from, a := netip.MustParseAddr(c.from), good
		a.Addresses = c.addresses
		p, ok := parse(advertisementFrame(a, from, c.hopLimit), from.Is6())
		if !ok || p.from != from || p.hopLimit != c.hopLimit || p.to != vrrp.Group(from.Is6()) {
			t.Fatalf("%s: %+v, %v", name, p, ok)
		}
		if c.change != nil {
			c.change(p.bytes)
		}
		e := &examination{}
		alike := e.judge(ours, from.Is6(), p)
		if alike != (c.want == "") || alike != (len(e.Findings) == 0) {
			t.Errorf("%s: alike %v, %+v", name, alike, e.Findings)
			continue
		}
		if !alike && (!strings.Contains(e.Findings[0].What, c.want) || e.Findings[0].Level != finding.Fail || e.Findings[0].Remedy == "") {
			t.Errorf("%s: %+v, want %q", name, e.Findings, c.want)
		}
	}
}

// Frames of any content are read within their bounds.
func FuzzParse(f *testing.F) {
	a := vrrp.Advertisement{ID: 51, Priority: 100, Interval: vrrp.Step, Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.10")}}
	f.Add(advertisementFrame(a, netip.MustParseAddr("192.0.2.2"), 255), false)
	f.Add(make([]byte, ethernet+ip6Bytes), true)
	f.Fuzz(func(t *testing.T, frame []byte, is6 bool) {
		if p, ok := parse(frame, is6); ok && len(p.bytes) > len(frame)-ethernet-20 {
			t.Errorf("%d bytes of %d", len(p.bytes), len(frame))
		}
	})
}
