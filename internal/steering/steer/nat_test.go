package steer_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/steer"
)

// world is clients, VIPs and backends around an Engine in mode nat, and what must hold whatever happens between them.
type world struct {
	*testing.T
	r   *rand.Rand
	e   *steer.Engine
	now time.Duration
}

// packet gives the engine a line of text.
func (w *world) packet(format string, args ...any) steer.Decision {
	return give(w.T, w.e, fmt.Sprintf(format, args...), w.now)
}

// side writes an endpoint as packets of a protocol have it.
func side(proto string, at netip.AddrPort) string {
	if proto == "ping" || proto == "pong" {
		return at.Addr().String()
	}
	return at.String()
}

// exchange sends a client's packet to a VIP. What comes out must be translatable back: the backend's reply, and an error of a
// router behind the balancer, go to that client as if the VIP had sent them.
func (w *world) exchange(proto string, client, vip netip.AddrPort) {
	w.Helper()
	tail := map[string]string{"tcp": "flags=syn", "udp": "01", "ping": fmt.Sprint("ident=", client.Port())}[proto]
	d := w.packet("%s %s > %s %s", proto, side(proto, client), side(proto, vip), tail)
	if d.Action != lb.Forward {
		return
	}
	from, to := client, d.Destination
	if d.Source.IsValid() {
		from = d.Source
	}
	if proto == "ping" {
		from, to = netip.AddrPortFrom(from.Addr(), client.Port()), netip.AddrPortFrom(to.Addr(), vip.Port())
	}
	check := func(what string, got steer.Decision, want lb.Reason) {
		w.Helper()
		good := got.Reason == want && got.Backend == d.Backend && got.Source.Addr() == vip.Addr() && got.Destination.IsValid() == d.Source.IsValid()
		if good && d.Source.IsValid() {
			good = got.Destination.Addr() == client.Addr()
		}
		if good && proto != "ping" {
			good = got.Source == vip && (!d.Source.IsValid() || got.Destination == client)
		}
		if !good {
			w.Fatalf("%s %s > %s went to %s from %s; %s: %s, from %s to %s", proto, client, vip, to, from, what, got.Reason, got.Source, got.Destination)
		}
	}
	if w.r.IntN(2) == 0 { // the router's word first: it opens and proves nothing
		proven := w.e.Tables().ProvenFlows
		check("an error about it", w.packet("unreachable 10.66.0.1 about %s %s > %s %s", proto, side(proto, from), side(proto, to), tail), lb.ReasonICMPReply)
		if w.e.Tables().ProvenFlows != proven {
			w.Fatal("an error has proven a flow")
		}
	}
	if w.r.IntN(3) > 0 {
		back := map[string]string{"tcp": "flags=syn,ack", "udp": "02", "ping": fmt.Sprint("ident=", client.Port())}[proto]
		check("its reply", w.packet("%s %s > %s %s", strings.Replace(proto, "ping", "pong", 1), side(proto, to), side(proto, from), back), lb.ReasonReply)
		check("an error about it", w.packet("unreachable 10.66.0.1 about %s %s > %s %s", proto, side(proto, from), side(proto, to), tail), lb.ReasonICMPReply)
	}
	// An error of a router before the balancer, about the reply, reaches the backend.
	if got := w.packet("unreachable 10.77.0.1 about %s %s > %s %s", strings.Replace(proto, "ping", "pong", 1), side(proto, vip), side(proto, client), tail); proto != "ping" && (got.Reason != lb.ReasonICMPError || got.Backend != d.Backend || got.Destination != d.Destination || got.Source != d.Source) {
		w.Fatalf("an error about the reply to %s: %s to %s as %s, want %s as %s", client, got.Reason, got.Destination, got.Source, d.Destination, d.Source)
	}
}

// unique checks that no two flows look alike to a backend.
func (w *world) unique() {
	w.Helper()
	seen := map[string]flow.Key{}
	for f := range w.e.Flows(w.now) {
		from := f.Key.Source()
		if f.Source.IsValid() {
			from = f.Source
		}
		if f.Key.Proto == flow.ProtoICMP {
			from = netip.AddrPortFrom(from.Addr(), f.Key.SrcPort)
		}
		port := f.Backend.Port
		if port == 0 {
			port = f.Key.DstPort
		}
		name := fmt.Sprint(f.Key.Proto, f.Backend.Address4, port, from)
		if other, ok := seen[name]; ok && f.Key.Proto != flow.ProtoICMP {
			w.Fatalf("%s and %s are the same to %s: %s", f.Key, other, f.Backend.Name, from)
		}
		seen[name] = f.Key
	}
}

// Random traffic, reloads and interventions in mode nat, with and without SNAT, in tables and pools that are full most of the
// time: what is forwarded can be answered, flows stay apart, and nothing is left over in the end.
func TestTranslationsGoBack(t *testing.T) {
	for _, c := range []struct{ name, snat, port string }{
		{"own addresses", "", ""},
		{"own ports", "", ", port: 7000"},
		{"small pool", "  snat: {addresses: [10.9.0.1], ports: 2000-2063}\n", ", port: 7000"},
		{"two addresses", "  snat: {addresses: [10.9.0.1, 10.9.0.2], ports: 1000-1199}\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			spec := func(backends ...string) string {
				text := "maglev_size: 251\nlimits: {flows: 150}\nservices:\n- name: pool\n  mode: nat\n" + c.snat +
					"  vips: [{address: 192.0.2.1, protocol: udp, port: 5684}, {address: 192.0.2.2, protocol: udp, port: 5684}, {address: 192.0.2.1, protocol: tcp, port: 80}]\n" +
					"  timeouts: {udp: 10s, tcp_opening: 5s, tcp_established: 20s}\n  backends:\n"
				for _, b := range backends {
					text += fmt.Sprintf("  - {name: %s, address: 10.1.0.%d%s}\n", b, b[0]-'a'+1, c.port)
				}
				return text
			}
			generations := []*lb.Snapshot{compile(t, spec("a", "b", "c")), compile(t, spec("a", "c")), compile(t, spec("a", "b", "c", "d"))}
			w := &world{T: t, r: rand.New(rand.NewPCG(1, 2)), e: steer.New(generations[0], steer.Options{})}
			vips := map[string][]string{"udp": {"192.0.2.1:5684", "192.0.2.2:5684"}, "tcp": {"192.0.2.1:80"}, "ping": {"192.0.2.1:0"}}
			for step := range 6000 {
				w.now += time.Duration(w.r.IntN(40)) * time.Millisecond
				proto := []string{"udp", "udp", "tcp", "ping"}[w.r.IntN(4)]
				client := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(w.r.IntN(40))}), uint16(1990+w.r.IntN(20)))
				vip := netip.MustParseAddrPort(vips[proto][w.r.IntN(len(vips[proto]))])
				k := flow.NewKey(client, vip, map[string]uint8{"udp": flow.ProtoUDP, "tcp": flow.ProtoTCP, "ping": flow.ProtoICMP}[proto])
				switch w.r.IntN(60) {
				case 0:
					w.e.SetSnapshot(generations[w.r.IntN(len(generations))])
				case 1:
					w.e.Forget(k)
				case 2:
					if proto == "ping" {
						break
					}
					list := w.e.Snapshot().Services[0].Backends
					if b := list[w.r.IntN(len(list))]; w.e.Reassign(k, b, w.now) && w.e.Owner(k, w.now) != b {
						t.Fatalf("step %d: %s is not with its new backend", step, k)
					}
				case 3:
					if w.r.IntN(10) == 0 {
						w.e.Rebalance()
					}
				default:
					w.exchange(proto, client, vip)
				}
				if step%50 == 0 {
					w.unique()
				}
			}
			counts := w.e.Tables()
			if counts.Flows < 100 && c.name != "small pool" || counts.FlowsEvicted+w.e.Reasons()[lb.ReasonSNATExhausted] == 0 || counts.FlowsExpired == 0 {
				t.Errorf("the tables were never full: %+v", counts)
			}
			// A flow ends with its reply; a reply that was left over would count by itself.
			flows := counts.Flows
			if n := w.e.Expire(w.now+time.Hour, -1); n != flows || w.e.Tables().Flows != 0 {
				t.Errorf("%d entries were left, of which %d flows with their replies", n, flows)
			}
		})
	}
}

// The states of TCP connections, as timeouts show them (opening 30 s, established 2 h 4 min, closing 30 s), and the modes in
// which they have proven themselves. Lower case is the backend. S: SYN, A: ACK, F: FIN, R: RST, H: SYN-ACK.
func TestTCPStates(t *testing.T) {
	flags := map[byte]string{'S': "syn", 'A': "ack", 'F': "fin,ack", 'R': "rst", 'H': "syn,ack"}
	for trace, c := range map[string]struct {
		state  string
		proven string
	}{
		"S": {"opening", ""}, "SS": {"opening", ""}, "SA": {"established", "l2dsr"}, "A": {"established", ""}, "AS": {"established", "l2dsr"}, "H": {"opening", ""},
		"SR": {"closing", ""}, "F": {"closing", ""}, "R": {"closing", ""}, "AFA": {"closing", ""}, "AFS": {"opening", ""}, "AFSA": {"established", "l2dsr"}, "AFH": {"closing", ""},
		"Sh": {"opening", ""}, "Sa": {"opening", ""}, "ShA": {"established", "nat"}, "ShS": {"opening", ""}, "ShSA": {"established", "nat"}, "Ah": {"established", ""}, "AhA": {"established", "nat"}, "AaS": {"established", ""},
		"ShAF": {"closing", "nat"}, "ShAf": {"closing", "nat"}, "ShAr": {"closing", "nat"}, "ShAFf": {"closing", "nat"}, "AFs": {"closing", ""}, "SrS": {"opening", ""}, "SrSA": {"established", ""},
		"ShAFSh": {"opening", "nat"}, "ShAFShA": {"established", "nat"}, "AaFS": {"opening", ""}, "AaFSA": {"established", ""},
	} {
		for _, mode := range []string{"nat", "l2dsr"} {
			if mode != "nat" && strings.ToUpper(trace) != trace {
				continue // replies go another way
			}
			e := steer.New(compile(t, strings.Replace(natSpec, "mode: nat", "mode: "+mode, 1)), steer.Options{})
			var backend netip.AddrPort
			now := time.Duration(0)
			for _, segment := range []byte(trace) {
				now += 2 * time.Second
				client := segment < 'a'
				line := "tcp 10.0.0.1:5000 > 192.0.2.1:5684"
				if !client {
					line = fmt.Sprintf("tcp %s > 10.0.0.1:5000", backend)
				}
				if d := give(t, e, line+" flags="+flags[segment&^0x20], now); client {
					backend = d.Destination
				}
			}
			n := 0
			for f := range e.Flows(now) {
				n++
				left := map[string]time.Duration{"opening": 30 * time.Second, "established": 124 * time.Minute, "closing": 30 * time.Second}[c.state]
				if f.State != c.state || f.Left != left {
					t.Errorf("mode %s, %s: %s for %s, want %s", mode, trace, f.State, f.Left, c.state)
				}
			}
			if n != 1 || e.Tables().ProvenFlows == 1 != (c.proven == mode) {
				t.Errorf("mode %s, %s: %d flows, %d proven", mode, trace, n, e.Tables().ProvenFlows)
			}
		}
	}
}

// Fragments follow the first one of their datagram both ways through mode nat, and so do errors that quote a later fragment.
func TestFragmentsAreTranslated(t *testing.T) {
	for _, snat := range []string{"", "  snat: {addresses: [10.9.0.1], ports: 2000-2999}\n"} {
		e := steer.New(compile(t, strings.Replace(natSpec, "  vips:", snat+"  vips:", 1)), steer.Options{})
		piece := func(from, to any, id, n int) string {
			return fmt.Sprintf("udp %s > %s payload=3000 frag=1400 id=%d piece=%d", from, to, id, n)
		}
		const client, vip = "10.0.0.1:5000", "192.0.2.1:5684"
		first := give(t, e, piece(client, vip, 7, 1), 0)
		later := give(t, e, piece(client, vip, 7, 2), 0)
		if first.Action != lb.Forward || later.Reason != lb.ReasonFragment || later.Backend != first.Backend || later.Source != first.Source || later.Destination != first.Destination {
			t.Fatalf("to the backend: %+v, then %+v", first, later)
		}
		from, to := any(client), first.Destination
		if first.Source.IsValid() {
			from = first.Source
		}
		quoting := func(line string) steer.Decision { return give(t, e, "unreachable 10.66.0.1 about "+line, 0) }
		back := func(what string, d steer.Decision, want lb.Reason) {
			t.Helper()
			if d.Reason != want || d.Backend != first.Backend || d.Source.String() != vip || d.Destination.IsValid() != first.Source.IsValid() || d.Destination.IsValid() && d.Destination.String() != client {
				t.Errorf("%s: %s from %s to %s", what, d.Reason, d.Source, d.Destination)
			}
		}
		back("an error about the later fragment as it left", quoting(piece(from, to, 7, 2)), lb.ReasonICMPReply)
		back("the reply's first fragment", give(t, e, piece(to, from, 8, 1), 0), lb.ReasonReply)
		back("the reply's later fragment", give(t, e, piece(to, from, 8, 2), 0), lb.ReasonFragment)
		if d := quoting(piece(vip, client, 8, 2)); d.Reason != lb.ReasonICMPError || d.Backend != first.Backend || d.Destination != first.Destination || d.Source != first.Source {
			t.Errorf("an error about the reply's later fragment as it left: %s to %s as %s", d.Reason, d.Destination, d.Source)
		}
		for what, line := range map[string]string{
			"another datagram": piece(from, to, 9, 2), "another backend": piece(from, "10.1.0.77:5684", 7, 2), "as it came": piece(client, "192.0.2.77:5684", 7, 2),
		} {
			if d := quoting(line); d.Reason != lb.ReasonNotService {
				t.Errorf("an error about %s: %s", what, d.Reason)
			}
		}
		if d := quoting(piece(vip, "192.0.2.1:9", 9, 2)); d.Reason != lb.ReasonICMPUnknown {
			t.Errorf("an error about an unknown datagram to a VIP: %s", d.Reason)
		}
		// Without its flow, a datagram is no longer known.
		e.Forget(flow.NewKey(netip.MustParseAddrPort(client), netip.MustParseAddrPort(vip), flow.ProtoUDP))
		if d := give(t, e, piece(client, vip, 7, 3), 0); d.Reason != lb.ReasonFragmentUnknown || d.Service == nil {
			t.Errorf("of a flow that was forgotten: %s", d.Reason)
		}
		// Nor with its backend; replies and errors are no longer translated.
		first = give(t, e, piece(client, vip, 17, 1), 0)
		if from, to = any(client), first.Destination; first.Source.IsValid() {
			from = first.Source
		}
		e.SetSnapshot(compile(t, strings.Replace(natSpec, "name: "+first.Backend.Name+",", "name: other,", 1)))
		if d := give(t, e, piece(client, vip, 17, 2), 0); d.Reason != lb.ReasonFragmentUnknown {
			t.Errorf("of a backend that is gone: %s", d.Reason)
		}
		if d := give(t, e, fmt.Sprintf("udp %s > %s 01", to, from), 0); d.Reason != lb.ReasonNotService {
			t.Errorf("the reply of a backend that is gone: %s", d.Reason)
		}
		if d := quoting(fmt.Sprintf("udp %s > %s 01", from, to)); d.Reason != lb.ReasonNotService {
			t.Errorf("an error about a backend that is gone: %s", d.Reason)
		}
	}
}
