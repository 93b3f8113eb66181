package turncat

import (
	"errors"
	"strings"
	"testing"
)

func TestParseServer(t *testing.T) {
	for text, want := range map[string]Server{
		"turn://user1:passwd1@127.0.0.1:5001":                   {"127.0.0.1", 5001, UDP, "user1", "passwd1"},
		"turn://user1:passwd1@127.0.0.1:5001?transport=tcp":     {"127.0.0.1", 5001, TCP, "user1", "passwd1"},
		"turn://u:p@turn.example.org:443?transport=tls":         {"turn.example.org", 443, TLS, "u", "p"},
		"turn://u:p@turn.example.org:443?transport=DTLS":        {"turn.example.org", 443, DTLS, "u", "p"},
		"turn://u:p@turn.example.org":                           {"turn.example.org", 3478, UDP, "u", "p"},
		"turn://1700000000%3Aalice:a%2Fb%40c%3D@192.0.2.1":      {"192.0.2.1", 3478, UDP, "1700000000:alice", "a/b@c="},
		"turn://u:p:q@192.0.2.1/":                               {"192.0.2.1", 3478, UDP, "u", "p:q"},
		"turn:192.0.2.1":                                        {"192.0.2.1", 3478, UDP, "", ""},
		"turn:192.0.2.1:7?transport=tcp":                        {"192.0.2.1", 7, TCP, "", ""},
		"turns:turn.example.org":                                {"turn.example.org", 5349, TLS, "", ""},
		"turns:turn.example.org:7?transport=tcp":                {"turn.example.org", 7, TLS, "", ""},
		"turns:turn.example.org?transport=udp":                  {"turn.example.org", 5349, DTLS, "", ""},
		"TURN:[2001:db8::1]:7":                                  {"2001:db8::1", 7, UDP, "", ""},
		"turn:[2001:db8::1]":                                    {"2001:db8::1", 3478, UDP, "", ""},
		"turns://u:p@[2001:db8::1]?transport=tcp&transport=udp": {"2001:db8::1", 5349, DTLS, "u", "p"},
	} {
		got, err := ParseServer(text)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"":                              "write turn://",
		"127.0.0.1:3478":                "write turn://",
		"stun:127.0.0.1":                "write turn://",
		"turn:":                         "no host",
		"turn:host:":                    "no port",
		"turn:host:99999":               "1 to 65535",
		"turn:2001:db8::1":              "brackets",
		"turn:[192.0.2.1]":              "IPv6",
		"turn:[2001:db8::1":             "bracket",
		"turn:host?transport=sctp":      "udp, tcp, tls or dtls",
		"turn:host?ttl=3":               "only transport",
		"turn://:p@host":                "USER:PASSWORD",
		"turn://u%zz:secret@host":       "USER:PASSWORD",
		"k8s://stunner/gw:udp-listener": "looked up",
		"k8s:///gw:udp-listener":        "looked up",
		"turn:" + strings.Repeat("a", maxAddressBytes): "too many",
	} {
		_, err := ParseServer(text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v; want something with %q, without the password", text, err, want)
		}
	}
	for text, want := range map[string]string{
		"k8s://media/gw:udp-1": "k8s://media/gw:udp-1", "K8S:///gw:l": "k8s://default/gw:l", "k8s://a/b.c:d": "k8s://a/b.c:d",
		"k8s://a/b": "", "k8s:///:l": "", "k8s://a/b/c:d": "", "k8s://a/b:c:d": "", "k8s://a/b:c?x": "", "k8s:": "", "turn://a/b:c": "", "k8s://A/b:c": "",
		"k8s://a/" + strings.Repeat("b", maxAddressBytes) + ":c": "",
	} {
		if g, err := ParseGateway(text); err == nil != (want != "") || err == nil && g.String() != want {
			t.Errorf("%.60s: %v, %v", text, g, err)
		}
	}
	if _, err := ParseServer("k8s://a/b:c"); !errors.Is(err, ErrKubernetes) {
		t.Error(err)
	}
	if s, _ := ParseServer("turn://u:secret@host"); strings.Contains(s.String(), "secret") {
		t.Errorf("%v shows the password", s)
	}
}

func TestParseEndpoints(t *testing.T) {
	for text, want := range map[string]Endpoint{
		"-":                    {Kind: KindStdio},
		"file://stdin":         {Kind: KindStdio},
		"udp://127.0.0.1:9000": {Kind: KindUDP, Host: "127.0.0.1", Port: 9000},
		"udp://:9000":          {Kind: KindUDP, Port: 9000},
		"tcp://[::1]:9000":     {Kind: KindTCP, Host: "::1", Port: 9000},
		"tcp://localhost:0":    {Kind: KindTCP, Host: "localhost"},
		"unix:///tmp/x.sock":   {Kind: KindUnix, Path: "/tmp/x.sock"},
		"unix://x.sock":        {Kind: KindUnix, Path: "x.sock"},
	} {
		if got, err := ParseListen(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "9000", "udp://9000", "udp://1.2.3.4", "unix://", "unix://" + strings.Repeat("x", 108), "sctp://:1", "udp://a b:1", "udp://:-1"} {
		if got, err := ParseListen(text); err == nil {
			t.Errorf("LISTEN %q: %+v", text, got)
		}
	}
	for text, want := range map[string]Endpoint{
		"udp://127.0.0.1:5000":      {Kind: KindUDP, Host: "127.0.0.1", Port: 5000},
		"udp://[2001:db8::7]:5000":  {Kind: KindUDP, Host: "2001:db8::7", Port: 5000},
		"udp://media.internal:5000": {Kind: KindUDP, Host: "media.internal", Port: 5000},
		"tcp://media.internal:22":   {Kind: KindTCP, Host: "media.internal", Port: 22},
	} {
		if got, err := ParsePeer(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "-", "unix:///x", "udp://:5000", "udp://host:0", "udp://host", "k8s://x/y:z"} {
		if got, err := ParsePeer(text); err == nil {
			t.Errorf("PEER %q: %+v", text, got)
		}
	}
}

func FuzzAddresses(f *testing.F) {
	for _, seed := range []string{
		"turn://user1:passwd1@127.0.0.1:5001?transport=udp", "turn:192.0.2.1:7?transport=tcp", "turns:[2001:db8::1]:7?transport=udp", "k8s://a/b:c",
		"turn://1%3Aa:b%40@host/", "udp://[::1]:9000", "tcp://:0", "unix:///tmp/x", "-", "file://stdin", "turn:[::]]:1", "turn:@:1", "turn:a@b@c:1?&=&",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if s, err := ParseServer(text); err == nil {
			again, err := ParseServer(s.String())
			s.User, s.Password = "", ""
			if err != nil || again != s {
				t.Errorf("%q: %+v is written %s, which is %+v, %v", text, s, s, again, err)
			}
		}
		if e, err := ParseListen(text); err == nil {
			if again, err := ParseListen(e.String()); err != nil || again != e {
				t.Errorf("%q: %+v is written %s, which is %+v, %v", text, e, e, again, err)
			}
		}
		if e, err := ParsePeer(text); err == nil && (e.Host == "" || e.Port == 0) {
			t.Errorf("%q: %+v", text, e)
		}
	})
}
