package steer_test

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/steer"
)

func spoofed(network byte, n int) flow.Key {
	from := netip.AddrPortFrom(netip.AddrFrom4([4]byte{network, byte(n >> 16), byte(n >> 8), byte(n)}), 5000)
	return flow.NewKey(from, netip.MustParseAddrPort("192.0.2.1:5684"), flow.ProtoUDP)
}

// Mode NAT under spoofed datagrams, at the review's rate and at ten times that, for two seconds of virtual time: flows that
// were answered stay, new clients are answered 40 ms later, and sessions that move by their connection id lose nothing.
func TestFloodsInModeNAT(t *testing.T) {
	for _, perSecond := range []int{12_000, 120_000} {
		t.Run(fmt.Sprint(perSecond), func(t *testing.T) {
			e := steer.New(compile(t, `maglev_size: 251
limits: {flows: 10000}
services:
- name: pool
  mode: nat
  vips: [{address: 192.0.2.1, protocol: udp, port: 5684}]
  cid: {protocols: [dtls12], layouts: [{length: 6, owner: {offset: 0, bits: 8}}]}
  backends: [{name: a, address: 10.1.0.1, nodes: [1]}, {name: b, address: 10.1.0.2, nodes: [2]}]
`), steer.Options{})
			record, err := hex.DecodeString("19fefd0001000000000007020a0b0c0d0e0004aabbccdd")
			if err != nil {
				t.Fatal(err)
			}
			reply := func(k flow.Key, d steer.Decision, now time.Duration) bool {
				r := give(t, e, fmt.Sprintf("udp %s > %s 01", d.Destination, k.Source()), now)
				return r.Reason == lb.ReasonReply
			}
			const old, length, rtt = 30, 2000, 40
			decisions := map[flow.Key]steer.Decision{}
			for i := range old {
				decisions[spoofed(10, i)] = e.Datagram(spoofed(10, i), nil, 0)
				if !reply(spoofed(10, i), decisions[spoofed(10, i)], 0) {
					t.Fatal("no reply before the flood")
				}
			}
			tried, answered, moved, kept := 0, 0, 0, 0
			for ms := range length + rtt {
				now := time.Second + time.Duration(ms)*time.Millisecond
				if at := ms - rtt; at >= 0 && at%10 == 0 {
					if k := spoofed(12, at); reply(k, decisions[k], now) {
						answered++
					}
					if k := spoofed(13, at); reply(k, decisions[k], now) {
						kept++
					}
				}
				if ms >= length {
					continue
				}
				for i := range perSecond / 1000 {
					e.Datagram(spoofed(11, ms*perSecond/1000+i), nil, now)
				}
				if ms%10 == 0 {
					tried++
					decisions[spoofed(12, ms)] = e.Datagram(spoofed(12, ms), nil, now)
					moved++
					d := e.Datagram(spoofed(13, ms), record, now)
					if d.Reason != lb.ReasonCID || d.Backend.Name != "b" {
						t.Fatalf("at %d ms a moved session got %s", ms, d.Reason)
					}
					decisions[spoofed(13, ms)] = d
				}
			}
			if answered*100 < tried*95 || kept != moved {
				t.Errorf("%d of %d new clients and %d of %d moved sessions were answered", answered, tried, kept, moved)
			}
			for i := range old {
				if d := e.Datagram(spoofed(10, i), nil, 4*time.Second); d.Reason != lb.ReasonConntrack {
					t.Errorf("old flow %d: %s", i, d.Reason)
				}
			}
			if n := e.Tables(); n.Flows > 10_000 || n.FlowsRefused+n.FlowsDisplaced > 0 || n.FlowsEvicted == 0 {
				t.Errorf("%+v", n)
			}
		})
	}
}

// A SNAT pool of 1,000 ports under 12,000 spoofed datagrams per second, for two seconds of virtual time: flows that were
// answered keep their ports, new clients are answered 10 ms later, and sessions that move by their connection id lose nothing.
func TestFloodOfASNATPool(t *testing.T) {
	e := steer.New(compile(t, `maglev_size: 251
services:
- name: pool
  mode: nat
  vips: [{address: 192.0.2.1, protocol: udp, port: 5684}]
  snat: {addresses: [10.9.0.1], ports: 2000-2999}
  cid: {protocols: [dtls12], layouts: [{length: 6, owner: {offset: 0, bits: 8}}]}
  backends: [{name: b, address: 10.1.0.2, nodes: [2]}]
`), steer.Options{})
	record, err := hex.DecodeString("19fefd0001000000000007020a0b0c0d0e0004aabbccdd")
	if err != nil {
		t.Fatal(err)
	}
	answered := func(k flow.Key, d steer.Decision, now time.Duration) bool {
		if !d.Source.IsValid() {
			return false
		}
		r := give(t, e, fmt.Sprintf("udp %s > %s 01", d.Destination, d.Source), now)
		return r.Reason == lb.ReasonReply && r.Destination == k.Source()
	}
	const old, length, rtt, perMs = 30, 2000, 10, 12
	for i := range old {
		if k := spoofed(10, i); !answered(k, e.Datagram(k, nil, 0), 0) {
			t.Fatal("no reply before the flood")
		}
	}
	decisions := map[flow.Key]steer.Decision{}
	tried, fresh, moved := 0, 0, 0
	for ms := range length + rtt {
		now := time.Second + time.Duration(ms)*time.Millisecond
		if at := ms - rtt; at >= 0 && at%10 == 0 {
			if k := spoofed(12, at); answered(k, decisions[k], now) {
				fresh++
			}
			if k := spoofed(13, at); answered(k, decisions[k], now) {
				moved++
			}
		}
		if ms >= length {
			continue
		}
		for i := range perMs {
			e.Datagram(spoofed(11, ms*perMs+i), nil, now)
		}
		if ms%10 == 0 {
			tried++
			decisions[spoofed(12, ms)] = e.Datagram(spoofed(12, ms), nil, now)
			decisions[spoofed(13, ms)] = e.Datagram(spoofed(13, ms), record, now)
		}
	}
	if fresh*100 < tried*95 || moved != tried {
		t.Errorf("of %d each, %d new clients and %d moved sessions were answered", tried, fresh, moved)
	}
	for i := range old {
		if d := e.Datagram(spoofed(10, i), nil, 4*time.Second); d.Reason != lb.ReasonConntrack {
			t.Errorf("old flow %d: %s", i, d.Reason)
		}
	}
	if n := e.Tables(); n.Flows > 1000 || n.FlowsEvicted == 0 {
		t.Errorf("%+v", n)
	}
}

// A packet of a new flow while flows that were answered use up the SNAT pool: it must not cost a search.
func BenchmarkSNATExhausted(b *testing.B) { snatFull(b, true) }

// The same while unanswered flows do: it takes the port of one.
func BenchmarkSNATTaken(b *testing.B) { snatFull(b, false) }

func snatFull(b *testing.B, proven bool) {
	e := steer.New(compile(b, `maglev_size: 251
limits: {flows: 262144}
services:
- name: pool
  mode: nat
  vips: [{address: 192.0.2.1, protocol: udp, port: 5684}]
  snat: {addresses: [10.9.0.1], ports: 1024-65535}
  backends: [{name: a, address: 10.1.0.1, port: 7000}]
`), steer.Options{})
	n := 0
	for ; n < 80_000; n++ {
		now := time.Duration(n) * time.Microsecond
		if d := e.Datagram(spoofed(10, n), nil, now); proven && d.Action == lb.Forward {
			give(b, e, fmt.Sprintf("udp %s > %s 01", d.Destination, d.Source), now)
		}
	}
	now := 2 * time.Second
	b.ReportAllocs()
	for b.Loop() {
		n++
		now += time.Microsecond
		e.Datagram(spoofed(10, n), nil, now)
	}
}
