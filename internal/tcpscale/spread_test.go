package tcpscale

import (
	"math"
	"strings"
	"testing"
)

func TestExpect(t *testing.T) {
	percent := func(p float64) *float64 { p /= 100; return &p }
	for _, c := range []struct {
		expect Expect
		held   []int // of servers a, b, c
		want   string
	}{
		{Expect{}, nil, ""},
		{Expect{Servers: 3}, []int{1, 100, 7}, ""},
		{Expect{Servers: 3}, []int{50, 50}, "2 servers hold connections, 3 were expected"},
		{Expect{Servers: 3}, []int{50, 50, 0}, "2 servers hold connections, 3 were expected"},
		{Expect{Spread: percent(0)}, []int{4, 3, 3}, ""}, // as even as can be
		{Expect{Spread: percent(10)}, []int{110, 90, 100}, ""},
		{Expect{Spread: percent(10)}, []int{111, 95, 94}, "server a has 111 of 300 connections, 11.0% more than an even share of 3 servers; 10% is allowed"},
		{Expect{Spread: percent(10)}, []int{104, 80, 116}, "server b has 80 of 300 connections, 20.0% less than an even share of 3 servers"},
		{Expect{Spread: percent(10)}, []int{100, 0, 100}, ""}, // who is not there is for Servers
		{Expect{Spread: percent(10)}, nil, "no server holds a connection"},
	} {
		r := &Report{}
		for i, n := range c.held {
			r.Peers = append(r.Peers, Peer{ID: string(rune('a' + i)), Connections: n})
		}
		if err := c.expect.Check(r); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.held, err, c.want)
		}
	}
	many := &Report{Peers: []Peer{{ID: "a", Connections: 1}}, OtherPeers: 1}
	if err := (&Expect{Spread: percent(10)}).Check(many); err == nil {
		t.Error("a spread that is not known is fine")
	}
	nan := math.NaN()
	for want, e := range map[string]Expect{"expected servers": {Servers: -1}, "expected spread": {Spread: percent(101)}, "spread of NaN": {Spread: &nan}} {
		if err := e.Validate(&ClientConfig{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if err := (&Expect{Servers: 2}).Validate(&ClientConfig{Plain: true}); err == nil {
		t.Error("--plain knows no servers")
	}
}
