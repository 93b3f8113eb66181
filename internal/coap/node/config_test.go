package node

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/coap/cluster"
)

func TestConfigValidate(t *testing.T) {
	big := uint32(256)
	for want, cfg := range map[string]Config{
		"listen: nothing to serve":                          {},
		`listen[0]: "5683" is no address`:                   {Listen: []string{"5683"}},
		`dtls[0]: ":x": port must be`:                       {DTLS: []string{":x"}},
		"dtls[0]: :5684 is taken by listen[0]":              {Listen: []string{":5684"}, DTLS: []string{":5684"}},
		"cluster.nodes: empty":                              {Cluster: &cluster.Config{}},
		"node_id: 256 does not fit":                         {DTLS: []string{":0"}, NodeID: &big},
		"cid_length: 1 is not between 2 and 16":             {DTLS: []string{":0"}, CIDLength: 1},
		"workers: -1 is not between":                        {DTLS: []string{":0"}, Workers: -1},
		"max_sessions: -1 is not between":                   {DTLS: []string{":0"}, MaxSessions: -1},
		"drain_timeout: 2h0m0s is not between 0s and":       {DTLS: []string{":0"}, DrainTimeout: 2 * time.Hour},
		"session_idle: 1s is not 0 (never) and not between": {DTLS: []string{":0"}, SessionIdle: time.Second},
		"session_idle: -1h0m0s is not 0 (never)":            {DTLS: []string{":0"}, SessionIdle: -time.Hour},
		"ack_timeout: 1ms is not between":                   {DTLS: []string{":0"}, AckTimeout: time.Millisecond},
		"separate_delay: 1h0m0s is not between":             {DTLS: []string{":0"}, SeparateDelay: time.Hour},
		`client_auth: "maybe" is not none`:                  {DTLS: []string{":0"}, ClientCerts: "maybe"},
		"client_auth: no client can be trusted":             {DTLS: []string{":0"}, ClientCerts: "needed", DemoCredentials: new(bool)},
		"certificate: it needs private_key":                 {DTLS: []string{":0"}, Certificate: "server.pem"},
		"listen_tls: TLS needs certificate":                 {TLS: []string{":0"}, PSKFile: "keys"},
		"listen_tls[0]: :5684 is taken by listen_tcp[0]":    {TCP: []string{":5684"}, TLS: []string{":5684"}},
		"shutdown: /shutdown is a resource of the plugtest": {Listen: []string{":0"}, Shutdown: true},
		"stream_idle: 1s is not between":                    {TCP: []string{":0"}, StreamIdle: time.Second},
		"trusted[1]: invalid Prefix is no prefix": {
			Listen: []string{":0"}, Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), {}},
		},
		"multicast.groups[0]: 10.0.0.1 is no multicast":  {Listen: []string{":0"}, Multicast: &Multicast{Groups: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}},
		"multicast.groups: only listeners for plain":     {DTLS: []string{":0"}, Multicast: &Multicast{}},
		`multicast.interfaces[0]: there is no interface`: {Listen: []string{":0"}, Multicast: &Multicast{Interfaces: []string{"none0"}}},
		"multicast.leisure: 1h0m0s is not between":       {Listen: []string{":0"}, Multicast: &Multicast{Leisure: time.Hour}},
		"multicast.group_size: it counts together with":  {Listen: []string{":0"}, Multicast: &Multicast{GroupSize: 5}},
		"trusted[0]: ::ffff:10.0.0.0/104 is no prefix":   {Listen: []string{":0"}, Trusted: []netip.Prefix{netip.PrefixFrom(netip.MustParseAddr("::ffff:10.0.0.0"), 104)}},
		"cluster.nodes: :15784 of node 1 is taken by d": {
			DTLS:    []string{":15784"},
			Cluster: &cluster.Config{Nodes: []cluster.Node{{ID: 1, DTLS: ":15784", Management: ":15884"}}},
		},
	} {
		if err := cfg.Validate(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v\nwant %s", err, want)
		}
	}
	good := Config{Listen: []string{":0", ":0"}, DTLS: []string{"localhost:5684"}}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
}

func TestDemoCredentials(t *testing.T) {
	c, err := LoadCredentials("", true)
	if err != nil {
		t.Fatal(err)
	}
	for identity, want := range map[string]string{
		"cali.":             ".fornium",
		"cali.30FC0A725D79": ".fornium",
		"password":          "sesame",
		"Client_identity":   "secretPSK",
		"device12@tenant34": "secret",
		"device1@tenant34":  "",
		"device12@tenant3":  "",
		"a@b@c@12345678":    "",
		"Cali.1":            "",
		"":                  "",
	} {
		if key, ok := c.PSK([]byte(identity)); string(key) != want || ok != (want != "") {
			t.Errorf("%q: %q %t, want %q", identity, key, ok, want)
		}
	}
}

func TestPSKFile(t *testing.T) {
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), "devices.psk")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	c, err := LoadCredentials(write("# devices\n\n one = c2VjcmV0 \ntwo=AAECAw==\nthree=:0x736573616D65\n"), false)
	if err != nil {
		t.Fatal(err)
	}
	if key, ok := c.PSK([]byte("one")); !ok || string(key) != "secret" {
		t.Errorf("%q %t", key, ok)
	}
	if key, ok := c.PSK([]byte("three")); !ok || string(key) != "sesame" { // as Californium writes it
		t.Errorf("%q %t", key, ok)
	}
	if key, ok := c.PSK([]byte("two")); !ok || string(key) != "\x00\x01\x02\x03" {
		t.Errorf("%q %t", key, ok)
	}
	if _, ok := c.PSK([]byte("cali.1")); ok {
		t.Error("a demo identity is accepted in addition to a PSK file")
	}
	for text, want := range map[string]string{
		"c2VjcmV0=device one":              "devices.psk:1: the key is no base64", // columns swapped
		"a=AAECAw==\nb":                    "devices.psk:2: no identity; write IDENTITY=BASE64",
		"=AAE=":                            "devices.psk:1: no identity",
		"a=secret!":                        `devices.psk:1: the key is no base64`,
		"a=:0x123":                         `devices.psk:1: the key behind :0x`,
		"a=":                               `devices.psk:1: the key has 0 bytes`,
		"a=AA==":                           `devices.psk:1: the key has 1 bytes, want 4 to 64, and better 16`,
		"a=T\n.psk='b',AA==":               `devices.psk:2: the key has 1 bytes`,
		"a=T\n.psk='b,c2VjcmV0":            `devices.psk:2: .psk: the identity has no closing quote`,
		"a=T\n.psk='b'":                    `devices.psk:2: .psk: no secret`,
		"a=T\n.psk=b!,c2VjcmV0":            `devices.psk:2: .psk: the identity is no base64`,
		"a=T\n.psk='b','c2VjcmV0":          `devices.psk:2: .psk: the secret has no closing quote`,
		".psk='b','c2VjcmV0'":              `devices.psk:1: .psk without a device`,
		"a=T\n.rpk=c2VjcmV0":               `devices.psk:2: .rpk: no public key; write a SubjectPublicKeyInfo`,
		"a=T\n.rpk=c2VjcmV":                `devices.psk:2: .rpk: the key is no base64`,
		"a=T\n.x509=\n":                    `devices.psk:2: .x509: certificates are read from PEM files`,
		"a=T\n.psk='b','secret'\n.pks=x":   `devices.psk:3: an unknown field`,
		"a=AAECAw==\na=AAECAw==":           `devices.psk:2: this identity appears twice`,
		strings.Repeat("i", 129) + "=AAE=": "devices.psk:1: identity of 129 bytes",
	} {
		_, err := LoadCredentials(write(text), false)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
		if err != nil && (strings.Contains(err.Error(), "secret!") || strings.Contains(err.Error(), "c2VjcmV0")) {
			t.Errorf("the error shows the key: %v", err)
		}
	}
	if _, err := LoadCredentials("/does/not/exist", false); err == nil {
		t.Error("a missing file is accepted")
	}
}

// Public credentials on an address that other machines reach are named, so that the command can warn of them.
func TestPublicDemoIsFound(t *testing.T) {
	off := false
	for _, c := range []struct {
		config Config
		want   string
	}{
		{Config{DTLS: []string{"127.0.0.1:5684", "[::]:5684"}}, "[::]:5684"},
		{Config{DTLS: []string{":5684"}}, ":5684"},
		{Config{DTLS: []string{"192.0.2.1:5684"}}, "192.0.2.1:5684"},
		{Config{DTLS: []string{"127.0.0.1:5684", "[::1]:5684", "localhost:5684"}}, ""},
		{Config{DTLS: []string{":5684"}, PSKFile: "keys"}, ""},
		{Config{DTLS: []string{":5684"}, PrivateKey: "server-key.pem"}, ""},
		{Config{DTLS: []string{":5684"}, DemoCredentials: &off}, ""},
	} {
		if got := c.config.PublicDemo(); got != c.want {
			t.Errorf("%+v: %q, want %q", c.config, got, c.want)
		}
	}
}

// A file that cannot be read is named once, behind its key.
func TestMissingFilesAreNamedOnce(t *testing.T) {
	err := (&Config{PSKFile: "/nowhere/psk", OSCOREFile: "/nowhere/oscore.yaml"}).CheckCredentials()
	if err == nil || !strings.HasPrefix(err.Error(), "psk_file: stat /nowhere/psk: ") || !strings.Contains(err.Error(), "\noscore: stat /nowhere/oscore.yaml: ") {
		t.Error(err)
	}
}
