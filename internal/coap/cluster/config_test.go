package cluster

import (
	"reflect"
	"strings"
	"testing"
)

func TestParseNodes(t *testing.T) {
	got, err := ParseNodes(":15784;localhost:15884;1,---;localhost:25884;2")
	want := []Node{{1, ":15784", "localhost:15884"}, {2, "---", "localhost:25884"}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%+v, %v", got, err)
	}
	if own := (&Config{Nodes: got}).Own(); len(own) != 1 || own[0].ID != 1 {
		t.Fatalf("own nodes %+v", own)
	}
}

// A node at a link-local address is known by the zone's number, as udpio reports it for received datagrams.
func TestZoneOfANode(t *testing.T) {
	for _, zone := range []string{"lo", "1"} {
		if got, err := resolve("[fe80::1%" + zone + "]:15884"); err != nil || got.String() != "[fe80::1%1]:15884" {
			t.Errorf("zone %s: %v, %v", zone, got, err)
		}
	}
}

func TestParseNodesRefuses(t *testing.T) {
	for give, want := range map[string]string{
		"":                                   "want DTLS-ADDRESS;MANAGEMENT-ADDRESS;ID",
		":1;localhost:2":                     "want DTLS-ADDRESS;MANAGEMENT-ADDRESS;ID",
		":1;localhost:2;x":                   `node id "x" is no number`,
		":1;localhost:2;256":                 "does not fit the one byte",
		":1;localhost:2;-1":                  "is no number",
		":1;localhost:2;1,---;localhost:3;1": "ids must differ",
		":1;localhost:2;1,---;localhost:2;2": "each node needs its own",
		":1;localhost;1":                     "is no address",
		":0;localhost:2;1":                   "port must be 1 to 65535",
		":1;localhost:2;1,---;:3;2":          "names no host",
		"---;localhost:2;1":                  "give the node of this process its DTLS address",
	} {
		if _, err := ParseNodes(give); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", give, err, want)
		}
	}
	many := strings.Repeat("---;h:1;1,", MaxNodes) + ":1;h:2;2"
	if _, err := ParseNodes(many); err == nil || !strings.Contains(err.Error(), "at most 256") {
		t.Errorf("257 nodes: %v", err)
	}
}

func FuzzParseNodes(f *testing.F) {
	for _, seed := range []string{":15784;localhost:15884;1,---;localhost:25884;2", "---;[::1]:1;255,:2;:3;0", ";;", ",,", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		nodes, err := ParseNodes(s)
		if err != nil {
			return
		}
		if c := (Config{Nodes: nodes}); len(c.Own()) == 0 || len(nodes) > MaxNodes {
			t.Fatalf("%q: %+v", s, nodes)
		}
	})
}

// The management port of a link that is not secured is on loopback, unless an address says otherwise, and then other nodes have to be
// there, too; that of a secured one is everywhere.
func TestManagementAddress(t *testing.T) {
	secured := &Security{Secret: []byte("secret")}
	for _, c := range []struct {
		management, other string
		group             []string
		security          *Security
		want              string // address, or part of an error
	}{
		{":15884", "", nil, nil, "127.0.0.1:15884"},
		{":15884", "localhost:25884", nil, nil, "127.0.0.1:15884"},
		{":15884", "", []string{"localhost:25884", "localhost:15884"}, nil, "127.0.0.1:15884"},
		{":15884", "", []string{"localhost:25884"}, secured, "0.0.0.0:15884"},
		{":15884", "192.0.2.1:15884", nil, secured, "0.0.0.0:15884"},
		{"0.0.0.0:15884", "192.0.2.1:15884", nil, nil, "0.0.0.0:15884"},
		{"192.0.2.7:15884", "192.0.2.1:15884", nil, nil, "192.0.2.7:15884"},
		{":15884", "192.0.2.1:15884", nil, nil, `nodes[0].management: ":15884" is bound to loopback, because the link is not secured, and 192.0.2.1:15884 is not there; set security`},
		{":15884", "", []string{"localhost:25884", "192.0.2.1:15884"}, nil, "192.0.2.1:15884 is not there"},
	} {
		cfg := Config{Nodes: []Node{{ID: 1, DTLS: ":15784", Management: c.management}}, Group: c.group, Security: c.security}
		if c.other != "" {
			cfg.Nodes = append(cfg.Nodes, Node{ID: 2, DTLS: Foreign, Management: c.other})
		}
		cluster, err := New(cfg, 1, nil)
		switch {
		case err != nil && !strings.Contains(err.Error(), c.want):
			t.Errorf("%+v: %v", c, err)
		case err == nil && cluster.Link().String() != c.want:
			t.Errorf("%+v: %s", c, cluster.Link())
		}
	}
}

func TestValidateLink(t *testing.T) {
	for want, change := range map[string]func(*Config){
		`nodes[0].management: ":15884" is bound to loopback`:   func(c *Config) { c.Group = []string{"localhost:1", "[2001:db8::1]:2"} },
		"group: 257 addresses, at most 256":                    func(c *Config) { c.Group = make([]string, 257) },
		`group[1]: "h" is no address`:                          func(c *Config) { c.Group = []string{"h:1", "h"} },
		`group[0]: ":1" names no host`:                         func(c *Config) { c.Group = []string{":1"} },
		"security.file: without a file there is no secret":     func(c *Config) { c.Security = &Security{} },
		"mac: the code needs the keys of a secured link":       func(c *Config) { c.MAC = new(true) },
		"accept_strangers: it and security exclude each other": func(c *Config) { c.AcceptStrangers, c.Security = true, &Security{File: "x"} },
	} {
		cfg := Config{Nodes: []Node{{ID: 1, DTLS: ":15784", Management: ":15884"}}}
		change(&cfg)
		if err := cfg.Validate(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
