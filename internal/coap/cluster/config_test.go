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
