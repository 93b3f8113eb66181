package cluster

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/coap/cluster/store"
)

func TestValidateReplicate(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"": func(*Config) {},
		"replicate: the link between the nodes is not secured":                              func(c *Config) { c.Security = nil },
		"replicate: this process runs 2 nodes":                                              func(c *Config) { c.Nodes = append(c.Nodes, Node{ID: 2, DTLS: ":2", Management: "localhost:2"}) },
		"replicate.etcd: without a store":                                                   func(c *Config) { c.Replicate.Etcd = nil },
		"replicate.etcd: 17 servers, at most 16":                                            func(c *Config) { c.Replicate.Etcd = make([]string, 17) },
		`replicate.etcd[1]: "localhost:2379" is no server`:                                  func(c *Config) { c.Replicate.Etcd = append(c.Replicate.Etcd, "localhost:2379") },
		`replicate.etcd[1]: "http://h" is no server`:                                        func(c *Config) { c.Replicate.Etcd = append(c.Replicate.Etcd, "http://h") },
		`replicate.etcd[1]: "http://a:b@h:1" is no server`:                                  func(c *Config) { c.Replicate.Etcd = append(c.Replicate.Etcd, "http://a:b@h:1") },
		"replicate.embedded: it and another store exclude":                                  func(c *Config) { c.Replicate.Embedded = "/x" },
		"replicate.embedded: a majority of the nodes decides, and of 1 nodes none may fail": func(c *Config) { c.Replicate = &Replicate{Embedded: "/x"} },
		"and of 8 nodes too many": func(c *Config) {
			c.Replicate = &Replicate{Embedded: "/x"}
			for i := range uint32(7) {
				c.Nodes = append(c.Nodes, Node{ID: 2 + i, DTLS: Foreign, Management: fmt.Sprintf("localhost:%d", 2+i)})
			}
		},
		"instead of a group": func(c *Config) { c.Replicate, c.Group = &Replicate{Embedded: "/x"}, []string{"localhost:2"} },
		"needs the address by which the other nodes name this one": func(c *Config) {
			c.Replicate, c.Nodes[0].Management = &Replicate{Embedded: "/x"}, ":1"
		},
		`replicate.prefix: "weir" must begin with /`:         func(c *Config) { c.Replicate.Prefix = "weir" },
		"replicate.certificate: certificate and private_key": func(c *Config) { c.Replicate.PrivateKey = "key.pem" },
		"replicate.etcd: ca and certificate are for https":   func(c *Config) { c.Replicate.CA = "ca.pem" },
	} {
		cfg := Config{
			Nodes: []Node{{ID: 1, DTLS: ":1", Management: "localhost:1"}}, Security: &Security{Secret: []byte("secret")}, Replicate: &Replicate{Etcd: []string{"http://127.0.0.1:2379"}},
		}
		change(&cfg)
		if err := cfg.Validate(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	missing := Config{
		Nodes: []Node{{ID: 1, DTLS: ":1", Management: "localhost:1"}}, Security: &Security{Secret: []byte("secret")}, Replicate: &Replicate{Etcd: []string{"https://127.0.0.1:2379"}, CA: "/missing.pem"},
	}
	if _, err := New(missing, 1, nil); err == nil || !strings.Contains(err.Error(), "replicate.ca") || !strings.Contains(err.Error(), "/missing.pem") {
		t.Errorf("a missing file: %v", err)
	}
	missing.Replicate = &Replicate{Store: new(store.Memory)}
	c, err := New(missing, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if life, now := c.Serving(); life == nil || !now {
		t.Error("a node that has no buddy yet does not serve")
	}
	if s := c.Replication(); !s.Alone || s.Buddy != nil || !strings.HasPrefix(s.Process, "1/") {
		t.Errorf("%+v", s)
	}
}
