package lb

import (
	"encoding"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// Each word of a configuration is read as its value and written back as the word; other words are refused with those that
// are known, and numbers without a word are "unknown".
func TestWords(t *testing.T) {
	type text interface {
		encoding.TextUnmarshaler
		encoding.TextMarshaler
		fmt.Stringer
	}
	for _, c := range []struct {
		words string
		make  func(n uint8) text
	}{
		{"nat l2dsr l3dsr mark", func(n uint8) text { return ptr(Mode(n)) }},
		{". ipip gue", func(n uint8) text { return ptr(Tunnel(n)) }},
		{"flow source cid no_source_port destination_port", func(n uint8) text { return ptr(Affinity(n)) }},
		{"up draining down", func(n uint8) text { return ptr(State(n)) }},
		{". tcp udp http coap_ping stun_binding", func(n uint8) text { return ptr(Probe(n)) }},
		{"siphash nfqlb", func(n uint8) text { return ptr(Hash(n)) }},
		{". flow ports", func(n uint8) text { return ptr(SCTPHash(n)) }},
		{"none up drain down", func(n uint8) text { return ptr(Override(n)) }},
	} {
		words := strings.Fields(c.words)
		for i, word := range words {
			if word == "." {
				continue // zero is no word of the file
			}
			v := c.make(77)
			if err := v.UnmarshalText([]byte(word)); err != nil || v.String() != c.make(uint8(i)).String() {
				t.Errorf("%T: %q is read as %v, %v", v, word, v, err)
			}
			if back, err := v.MarshalText(); err != nil || string(back) != word {
				t.Errorf("%T: %q is written as %q, %v", v, word, back, err)
			}
		}
		for _, other := range []string{"", " " + words[1], "unknown", "."} {
			err := c.make(0).UnmarshalText([]byte(other))
			if err == nil {
				t.Errorf("%T takes %q", c.make(0), other)
				continue
			}
			for _, word := range words {
				if word != "." && !strings.Contains(err.Error(), word) {
					t.Errorf("%v does not name %s", err, word)
				}
			}
		}
		if got := c.make(uint8(len(words))).String(); got != "unknown" {
			t.Errorf("%T: number %d is called %q", c.make(0), len(words), got)
		}
	}
	for i, want := range []string{"datapath", "cluster", "health", "operator", "unknown"} {
		if got := Overrider(i).String(); got != want {
			t.Errorf("overrider %d is called %q", i, got)
		}
	}
	for i, want := range []string{"pass", "forward", "drop", "hold", "answer", "unknown"} {
		if got := Action(i).String(); got != want {
			t.Errorf("action %d is called %q", i, got)
		}
	}
}

// Values are read from text, and those that can be written are written so that they read back. "" is a refusal.
func TestValues(t *testing.T) {
	read := func(v encoding.TextUnmarshaler, text string) string {
		if v.UnmarshalText([]byte(text)) != nil {
			return ""
		}
		return fmt.Sprint(v)
	}
	for text, want := range map[string]string{
		"1": "1", "65535": "65535", "1-1": "1", "5000-5999": "5000-5999", "1-65535": "1-65535", "any": "any",
		"": "", "0": "", "65536": "", "0-5": "", "5-": "", "-5": "", "2-1": "", "5-65536": "", "x": "", "+1": "", "1-2-3": "",
	} {
		if got := read(&PortRange{}, text); got != want {
			t.Errorf("port %q is read as %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]string{
		"192.0.2.1": "192.0.2.1/32", "192.0.2.0/24": "192.0.2.0/24", "2001:db8::1": "2001:db8::1/128", "2001:db8::/64": "2001:db8::/64", "::ffff:192.0.2.1": "192.0.2.1/32",
		"0.0.0.0/0": "0.0.0.0/0", "": "", "192.0.2.1/24": "", "192.0.2.0/33": "", "fe80::1%eth0": "", "::ffff:192.0.2.0/120": "", "host": "",
	} {
		if got := read(&AddressPrefix{}, text); got != want {
			t.Errorf("address %q is read as %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]time.Duration{"never": Never, "1ns": 1, "1h30m": 90 * time.Minute, "0s": 0, "-1s": 0, "10": 0, "": 0} {
		var d Timeout
		if err := d.UnmarshalText([]byte(text)); time.Duration(d) != want || (err == nil) != (want > 0) {
			t.Errorf("time %q is read as %v, %v", text, time.Duration(d), err)
		}
	}
	for i, text := range []string{"dtls12", "dtls13", "quic"} {
		var p CIDProtocol
		if err := p.UnmarshalText([]byte(text)); err != nil || p != 1<<i {
			t.Errorf("CID protocol %q is read as %b, %v", text, p, err)
		}
	}
	var key HexKey
	if err := key.UnmarshalText([]byte("000102030405060708090a0b0c0d0e0f")); err != nil || key != (HexKey{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}) {
		t.Errorf("key %x, %v", key[:], err)
	}
	for v, texts := range map[encoding.TextUnmarshaler][]string{
		&key:             {"", "000102030405060708090a0b0c0d0e", "000102030405060708090a0b0c0d0e0f10", "000102030405060708090a0b0c0d0e0g"},
		new(CIDProtocol): {"", "dtls", "QUIC"},
		new(Protocol):    {"", "icmp", "TCP", "17"},
	} {
		for _, text := range texts {
			if v.UnmarshalText([]byte(text)) == nil {
				t.Errorf("%T takes %q", v, text)
			}
		}
	}
	for text, want := range map[string]VIP{
		"udp 192.0.2.1:5684":          {netip.MustParsePrefix("192.0.2.1/32"), UDP, 5684, 5684},
		"tcp 192.0.2.0/24:1-9":        {netip.MustParsePrefix("192.0.2.0/24"), TCP, 1, 9},
		"sctp [2001:db8::1]:any":      {netip.MustParsePrefix("2001:db8::1/128"), SCTP, 0, 65535},
		"udp [2001:db8::/64]:0-65534": {netip.MustParsePrefix("2001:db8::/64"), UDP, 0, 65534},
	} {
		if got := want.String(); got != text {
			t.Errorf("VIP %q is written as %q", text, got)
		}
	}
	if one, two := (Target{"s", ""}).String(), (Target{"s", "b"}).String(); one != "s" || two != "s/b" {
		t.Errorf("targets %q, %q", one, two)
	}
	for err, want := range map[error]string{
		&Error{"", "odd", "even it"}:                                   "odd; even it",
		&Error{"a.b", "odd", "even it"}:                                "a.b: odd; even it",
		&Errors{{"a", "odd", "x"}, {"b", "odd", "y"}, {"c", "o", "z"}}: "a: odd; x (and 2 more)",
	} {
		if err.Error() != want {
			t.Errorf("error %q, want %q", err, want)
		}
	}
}

// Names hold letters, digits and six signs, and nothing else.
func TestNames(t *testing.T) {
	for r := rune(0); r < 0x250; r++ {
		want := strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:[]", r)
		s := small()
		s.Services[0].Backends[0].Name = "b" + string(r)
		if got := refusal(t, s); got != map[bool]string{true: "", false: "services[0].backends[0].name"}[want] {
			t.Errorf("name with %q: refused at %q", r, got)
		}
	}
}

// A rule for people names each of its fields, and at most four values of a list.
func TestRulesAreWritten(t *testing.T) {
	list := func(n int) (out []PortRange) {
		for i := range n {
			out = append(out, PortRange{uint16(i + 1), uint16(i + 1)})
		}
		return out
	}
	for want, r := range map[string]FlowRule{
		"a priority 0: everything": {Name: "a"},
		"b priority -3: tcp,sctp from 10.0.0.0/8 port 1,2,3,4 to ::/0 port 1,2,3,4 and 1 more with tcp[13:1] & 0x2 = 0x2": {
			Name: "b", Priority: -3, Protocols: []uint8{TCP, SCTP}, Sources: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, SourcePorts: list(4),
			Destinations: []netip.Prefix{netip.MustParsePrefix("::/0")}, DestinationPorts: list(5), Match: []ByteMatch{{TCP, 13, 1, 2, 2}},
		},
		"c priority 7: sctp port 1,2,3,4 and 2 more in udp port 9899": {Name: "c", Priority: 7, Protocols: []uint8{SCTP}, SourcePorts: list(6), UDPEncap: 9899},
	} {
		if got := r.String(); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
	if text, err := (ByteMatch{UDP, 4, 2, 15, 1}).MarshalText(); err != nil || string(text) != "udp[4:2] & 0xf = 0x1" {
		t.Errorf("match %s, %v", text, err)
	}
}

// A file with many mistakes has at most 50 errors, the first 50 in the order of the file; one mistake is one error.
func TestAllMistakesAreNamed(t *testing.T) {
	for _, n := range []int{1, 2, 50, 60} {
		s := small()
		s.Services[0].Backends = weightless(n)
		for i := range s.Services[0].Backends {
			s.Services[0].Backends[i].Name = ""
		}
		_, err := Compile(s, nil, AllCaps())
		var several Errors
		var one *Error
		if errors.As(err, &several) == (n == 1) || !errors.As(err, &one) || one.Path != "services[0].backends[0].name" {
			t.Fatalf("%d mistakes: %T %v", n, err, err)
		}
		if n > 1 && (len(several) != min(n, 50) || several[len(several)-1].Path != fmt.Sprintf("services[0].backends[%d].name", min(n, 50)-1)) {
			t.Errorf("%d mistakes: %d errors, the last is %v", n, len(several), several[len(several)-1])
		}
	}
}
