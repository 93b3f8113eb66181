package engine

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/dtls/arena"
	"github.com/weir-lb/weir/internal/dtls/record"
)

// movers is a cluster whose nodes may have each other's sessions.
type movers struct{ pair }

func (*movers) Here(uint32) bool { return true }
func (*movers) Hold(uint32) bool { return true }

func (*movers) Missing(*Worker, uint32, []byte, netip.AddrPort, netip.AddrPort, bool) bool {
	return false
}

// twoNodes are workers of the nodes 1 and 2, of which the second one has an arena.
func twoNodes(t *testing.T) (one, two *wire) {
	t.Helper()
	one = newWire(t, func(c *Config) { c.Cluster = new(movers) })
	two = newWire(t, func(c *Config) {
		c.CIDs, c.Cluster, c.Arena = ByteOwnerCIDs(6, 2), new(movers), newArena(t)
	})
	two.w.now = time.Hour // another clock
	return one, two
}

// move moves the sessions of node 1 that are ready.
func move(t *testing.T, from, to *wire, force bool) (moved [][]byte, busy int) {
	t.Helper()
	given, busy, _ := from.w.Detach(1, 100, force, func(id, session []byte) {
		if len(session) > MaxMoved || len(id) != 6 {
			t.Fatalf("a session of %d bytes, with a connection id of %d", len(session), len(id))
		}
		moved = append(moved, bytes.Clone(session))
		to.w.Attach(1, session, func(_ *Worker, ok bool) {
			if !ok {
				t.Error("the session is refused")
			}
		})
	})
	if given != len(moved) {
		t.Errorf("%d sessions given, %d counted", len(moved), given)
	}
	return moved, busy
}

// A session goes on at another node with the next sequence number; what was received before is refused there, its old node can neither
// seal nor open any more, and nothing is sent about the move.
func TestMovedSession(t *testing.T) {
	one, two := twoNodes(t)
	d := one.mustConnect(addr(1), "dev-a", true)
	used := map[uint64]bool{}
	answers := func(x *wire, datagram []byte) int {
		out := x.in(datagram, d.addr)
		for _, m := range out {
			sequence := binary.BigEndian.Uint64(m.b[3:])
			if used[sequence] {
				t.Errorf("sequence number %x was used twice", sequence)
			}
			used[sequence] = true
			if d.open(m.b) == "" {
				t.Error("an answer does not open")
			}
		}
		return len(out)
	}
	before := d.seal([]byte("before"))
	if n := answers(one, before); n != 1 {
		t.Fatalf("%d answers before the move", n)
	}
	old := one.w.peers.oldest
	one.public = one.public[:0]
	moved, busy := move(t, one, two, false)
	if len(moved) != 1 || busy != 0 || len(one.public) != 0 || one.w.peers.count != 0 {
		t.Fatalf("%d moved, %d busy, %d datagrams sent, %d sessions left", len(moved), busy, len(one.public), one.w.peers.count)
	}
	one.checkTables()
	two.checkTables()
	var scratch record.Scratch
	if _, err := old.association.Seal(&scratch, record.Alert, make([]byte, 200), record.MaxHeadRoom, 2); err == nil {
		t.Error("the old node can still seal an alert")
	}
	if keys := old.association.Keys(record.Server); keys.ClientKey != [32]byte{} || keys.ServerKey != [32]byte{} {
		t.Error("the old node still has the keys")
	}
	if n := answers(two, before); n != 0 {
		t.Error("a record that was handled before the move is handled again")
	}
	for range 5 {
		if n := answers(two, d.seal([]byte("after"))); n != 1 {
			t.Fatalf("%d answers after the move", n)
		}
	}
	if s := two.stats(); s.MovedIn != 1 || s.Replays != 1 || s.Kept != 1 || one.stats().MovedOut != 1 {
		t.Errorf("counted: %+v", s)
	}
	info := two.w.peers.oldest.Info()
	if info.Identity != "dev-a" || !info.HasCID || !info.Validated || info.Addr != d.addr || !info.ExtendedMasterSecret || info.Established > two.w.now {
		t.Errorf("the session is now %+v", info)
	}
	two.w.Attach(1, moved[0], func(_ *Worker, ok bool) {
		if ok {
			t.Error("the same session is taken twice")
		}
	})
	two.w.Attach(3, moved[0], func(_ *Worker, ok bool) {
		if ok {
			t.Error("a session is taken whose connection id names another node than was announced")
		}
	})
}

// A session whose client has sent nothing since its handshake may need the final flight again, and stays for a while; one without
// connection ids stays.
func TestSessionsThatStay(t *testing.T) {
	one, two := twoNodes(t)
	fresh := one.mustConnect(addr(1), "dev-a", true)
	plain := one.mustConnect(addr(2), "dev-b", false)
	if moved, busy := move(t, one, two, false); len(moved) != 0 || busy != 1 {
		t.Errorf("%d sessions moved, %d wait", len(moved), busy)
	}
	move(t, one, two, true)
	if one.w.peers.count != 1 || two.w.peers.count != 1 || !one.alive(plain) || !two.alive(fresh) {
		t.Errorf("%d and %d sessions", one.w.peers.count, two.w.peers.count)
	}
}

// A session that has come from another node outlives the process of its new one.
func TestMovedSessionIsKept(t *testing.T) {
	one, two := twoNodes(t)
	d := one.mustConnect(addr(1), "dev-a", true)
	if !one.alive(d) {
		t.Fatal("no answer before the move")
	}
	move(t, one, two, true)
	if !two.alive(d) {
		t.Fatal("no answer after the move")
	}
	p := two.w.peers.oldest
	sent := p.association.Sent()
	three := newWire(t, func(c *Config) { c.CIDs, c.Cluster, c.Arena = ByteOwnerCIDs(6, 2), new(movers), two.w.cfg.Arena })
	three.w.now = two.w.now
	association := p.association
	restored := arena.Restored{Session: p.kept, State: arena.State{
		Suite: association.Suite(), Keys: association.Keys(record.Server), ReadCID: association.ReadCID(), WriteCID: association.WriteCID(),
		Limit: association.PlaintextLimit(), Auth: uint8(p.holder.auth), Identity: p.Identity(), Flags: p.flags(), Sent: sent, Window: association.Window(), Path: p.pathNow(),
	}}
	if three.w.restore(&restored) == nil || !three.alive(d) {
		t.Error("the session is lost with the process of the node it has moved to")
	}
	other := newWire(t, func(c *Config) { c.CIDs, c.Cluster = ByteOwnerCIDs(6, 2), new(pair) })
	if other.w.fits(&restored.State) {
		t.Error("a node whose cluster moves no sessions takes one of another node")
	}
}

func FuzzAttach(f *testing.F) {
	one := newWire(f, func(c *Config) { c.Cluster = new(movers) })
	one.mustConnect(addr(1), "dev-a", true)
	one.w.Detach(1, 1, true, func(_, session []byte) {
		f.Add(bytes.Clone(session))
		f.Add(bytes.Clone(session[:len(session)-3]))
	})
	f.Fuzz(func(t *testing.T, b []byte) {
		two := newWire(t, func(c *Config) { c.CIDs, c.Cluster = ByteOwnerCIDs(6, 2), new(movers) })
		two.w.Attach(1, b, func(_ *Worker, ok bool) {
			if ok != (two.w.peers.count == 1) {
				t.Errorf("taken: %v, %d sessions", ok, two.w.peers.count)
			}
		})
		two.w.Detach(1, 1, true, func(_, session []byte) {
			if len(session) > MaxMoved {
				t.Errorf("%d bytes", len(session))
			}
		})
	})
}
