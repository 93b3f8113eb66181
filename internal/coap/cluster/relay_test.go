package cluster

import (
	"bytes"
	"net/netip"
	"testing"
	"time"
)

// InjectFinal makes worker a relayCarrier.
func (w *worker) InjectFinal(b []byte, client, router netip.AddrPort) { w.Inject(b, client, router) }

// three runs three nodes with or without a MAC, whose links are made.
func three(t *testing.T, mac bool) (w *network, nodes [3]*running) {
	t.Helper()
	w = &network{t: t}
	for i := range nodes {
		nodes[i] = w.start(uint32(i+1), at(i+1), func(cfg *Config) {
			cfg.MAC = &mac
			for other := range nodes {
				if other != i {
					list(uint32(other+1), at(other+1))(cfg)
				}
			}
		})
	}
	w.run(2 * time.Second)
	return w, nodes
}

// A datagram that came through node 2 goes from node 1 one step further to node 3, which answers through node 2; clients with addresses of
// both families.
func TestRelay(t *testing.T) {
	for _, mac := range []bool{true, false} {
		for _, client := range []netip.AddrPort{client, netip.MustParseAddrPort("[2001:db8::1]:40000")} {
			w, n := three(t, mac)
			if !n[0].onward(&n[0].worker, &n[0].counters[0], 3, record, client, at(2)) {
				t.Fatal("not sent on")
			}
			frame := bytes.Clone(n[0].sent[0].bytes)
			w.deliver()
			if len(n[2].injected) != 1 || !bytes.Equal(n[2].injected[0].bytes, record) || n[2].injected[0].to != client || n[2].injected[0].router != at(2) {
				t.Fatalf("MAC %v: node 3 received %+v", mac, n[2].injected)
			}
			if s := n[0].Stats(); s.Relayed != 1 || n[2].Stats().ProcessedForwarded != 1 {
				t.Errorf("counted: %+v", s)
			}
			forged := 0
			for i := range frame[:len(frame)-len(record)] { // the router is covered by the MAC, too
				bad := bytes.Clone(frame)
				bad[i] ^= 0x40
				before := len(n[2].injected)
				w.send(at(1), at(3), bad)
				if mac && len(n[2].injected) != before {
					t.Errorf("a frame whose byte %d was changed is taken", i)
				}
				forged++
			}
			w.send(at(9), at(3), frame)
			if s := n[2].Stats(); s.Strangers == 0 || mac && s.BadForward+s.DroppedForward+s.Strangers+s.Malformed+s.LinkRefused < uint64(forged) {
				t.Errorf("MAC %v: %+v", mac, s)
			}
		}
	}
}

// What a node has sent does not return to it, and a router that is no node is refused.
func TestRelayRefuses(t *testing.T) {
	w, n := three(t, true)
	if n[0].onward(&n[0].worker, &n[0].counters[0], 2, record, client, at(2)) {
		t.Error("sent back to the node that it came from")
	}
	n[0].onward(&n[0].worker, &n[0].counters[0], 3, record, client, at(7))
	w.deliver()
	if len(n[2].injected) != 0 || n[2].Stats().Strangers != 1 {
		t.Errorf("%d injected with a router that is no node; %+v", len(n[2].injected), n[2].Stats())
	}
	long := make([]byte, 2048-HeaderLength(client)-macLength-3)
	if !n[0].onward(&n[0].worker, &n[0].counters[0], 3, long, client, at(2)) || n[0].Stats().DroppedForward != 1 {
		t.Error("a datagram that does not fit is not dropped")
	}
}

// Sessions do not move over a link that is not secured.
func TestNoMovesUnsecured(t *testing.T) {
	c := open(t, 1, nil)
	if c.Moves() != nil || c.Hold(2) || c.Here(2) || c.Drain(nil) == nil || c.Undrain() == nil {
		t.Error("sessions move in clear")
	}
}
