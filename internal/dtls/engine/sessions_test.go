package engine

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/dtls/record"
	"github.com/weir-lb/weir/internal/udpio"
)

// alive reports whether the server still serves the device's session.
func (x *wire) alive(d *device) bool {
	out := x.in(d.seal([]byte("alive?")), d.addr)
	return len(out) == 1 && out[0].to == d.addr && d.open(out[0].b) == "alive?"
}

// alert is the authenticated alert that the server has sent to a device last; none: 255, 255.
func (x *wire) alert(d *device) (level, description byte) {
	for _, out := range x.public {
		var r record.Record
		if _, err := record.Next(out.b, -1, &r); err != nil || out.to != d.addr {
			continue
		}
		if typ, payload, _, v := d.a.Open(d.scratch, &r); v == record.Opened && typ == record.Alert && len(payload) == 2 {
			return payload[0], payload[1]
		}
	}
	return 255, 255
}

// checkTables compares the tables that hold the same peers.
func (x *wire) checkTables() {
	x.t.Helper()
	t, o := &x.w.peers, &x.w.sessions
	list, resting := 0, t.awake == nil
	for p := t.newest; p != nil; p = p.older {
		list++
		if resting && x.w.now-p.last < RestAfter {
			x.t.Fatalf("a peer rests after %v", x.w.now-p.last)
		}
		resting = resting || p == t.awake
		if o.slots.At(p.slot) != p {
			x.t.Fatal("a slot holds another peer")
		}
	}
	if !resting {
		x.t.Fatal("the oldest peer that does not rest is not in the list")
	}
	if list != t.count || o.byIdentity.Len() != list || len(t.byCID)+len(t.byAddress) != list || o.slots.Len() != list {
		x.t.Fatalf("%d peers, %d in the list, %d owned, %d by id, %d by address, %d slots", t.count, list, o.byIdentity.Len(),
			len(t.byCID), len(t.byAddress), o.slots.Len())
	}
	if t.count > x.w.cfg.MaxSessions || o.superseded.Len() > t.count {
		x.t.Fatalf("%d peers, %d of them superseded, at most %d", t.count, o.superseded.Len(), x.w.cfg.MaxSessions)
	}
}

// One identity's handshakes must not take the places of devices that sleep: 1088 of them ended 50 of 50 sessions.
func TestHandshakesOfOneIdentityEvictNoSleepers(t *testing.T) {
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprintf("sleepers share an identity %t", shared), func(t *testing.T) {
			x := newWire(t, func(c *Config) { c.MaxSessions = 1000 })
			var sleepers []*device
			for i := range 50 {
				identity := "dev-fleet"
				if !shared {
					identity = fmt.Sprint("dev-", i)
				}
				sleepers = append(sleepers, x.mustConnect(addr(i), identity, true))
			}
			x.w.now += 33 * time.Second
			connected, clients := 0, 0
			for i := range 10880 {
				x.w.now += time.Millisecond
				_, _ = x.connect(addr(1000+i), "dev-attacker", true)
				if i%100 == 99 {
					clients++
					if _, err := x.connect(addr(100000+i), fmt.Sprint("dev-new-", i), true); err == nil {
						connected++
					}
				}
			}
			x.checkTables()
			if connected*100 < clients*95 {
				t.Errorf("%d of %d clients of other identities connected during the flood", connected, clients)
			}
			for i, d := range sleepers {
				if !x.alive(d) {
					t.Errorf("sleeper %d has lost its session", i)
				}
			}
			s := x.stats()
			if s.Sessions != 1000 || s.EvictedOverShare < uint64(clients)/2 || s.SessionsFull < 9000 || s.EvictedStale != 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// Handshakes that are not completed take no session's place.
func TestHalfOpenHandshakesEvictNoSession(t *testing.T) {
	x := newWire(t, func(c *Config) { c.MaxSessions, c.MaxHalfOpen = 100, 500 })
	var devices []*device
	for i := range 100 {
		devices = append(devices, x.mustConnect(addr(i), "dev", true))
	}
	x.w.now += 24 * time.Hour
	for i := range 10000 {
		x.halfOpenClient(addr(1000 + i))
	}
	for i, d := range devices {
		if !x.alive(d) {
			t.Fatalf("device %d has lost its session", i)
		}
	}
}

// A fleet that shares one identity cannot be distinguished: no one is evicted before half an hour of silence.
func TestFullTableOfOneIdentity(t *testing.T) {
	x := newWire(t, func(c *Config) { c.MaxSessions = 10 })
	var devices []*device
	for i := range 10 {
		devices = append(devices, x.mustConnect(addr(i), "dev", i%2 == 0))
	}
	x.w.now += 29 * time.Minute
	for i, d := range devices {
		if i != 3 && !x.alive(d) {
			t.Fatal("no answer")
		}
	}
	_, err := x.connect(addr(100), "dev", true)
	if err == nil || !strings.Contains(err.Error(), "alert 80") {
		t.Fatalf("an eleventh session while none is stale: %v", err)
	}
	if s := x.stats(); s.SessionsFull != 1 || s.Sessions != 10 || s.HandshakesFailed != 1 {
		t.Fatalf("%+v", s)
	}
	x.w.now += 2 * time.Minute
	var all []sent
	capture := x.w.out.publicOut
	x.w.out.publicOut = func(m []udpio.Message) {
		capture(m)
		all = append(all, x.public...)
	}
	x.mustConnect(addr(101), "dev", true)
	x.w.out.publicOut, x.public = capture, all
	if level, description := x.alert(devices[3]); level != 1 || description != 0 {
		t.Errorf("the one that was evicted got alert %d, %d, want close_notify", level, description)
	}
	if x.alive(devices[3]) {
		t.Error("the one that was silent for longest is still there")
	}
	for i, d := range devices {
		if i != 3 && !x.alive(d) {
			t.Errorf("device %d has lost its session", i)
		}
	}
	if s := x.stats(); s.EvictedStale != 1 || s.Sessions != 10 {
		t.Fatalf("%+v", s)
	}
}

// Where each device has its own identity, a device that has lost its session gets a new one in place of the old one, and a
// device too many is refused until one is stale.
func TestFullTableOfManyIdentities(t *testing.T) {
	x := newWire(t, func(c *Config) { c.MaxSessions = 10 })
	var devices []*device
	for i := range 10 {
		devices = append(devices, x.mustConnect(addr(i), fmt.Sprint("dev-", i), true))
		x.w.now += time.Second
	}
	if _, err := x.connect(addr(100), "dev-100", true); err == nil {
		t.Error("an eleventh identity while no session is stale")
	}
	again := x.mustConnect(addr(101), "dev-5", true)
	if x.alive(devices[5]) || !x.alive(again) {
		t.Error("the device's new session did not take the place of its old one")
	}
	x.w.now += 31 * time.Minute
	for i, d := range devices {
		if i != 5 && i != 7 && !x.alive(d) {
			t.Errorf("device %d has lost its session", i)
		}
	}
	x.alive(again)
	x.mustConnect(addr(102), "dev-100", true)
	if x.alive(devices[7]) {
		t.Error("the stale session is still there")
	}
	if s := x.stats(); s.SessionsFull != 1 || s.EvictedOwnIdentity != 1 || s.EvictedStale != 1 || s.Sessions != 10 {
		t.Errorf("%+v", s)
	}
}

// Of a shared identity, the session that a device has left behind goes first; a record of it shows that it was another device.
func TestSupersededSessionsGoFirst(t *testing.T) {
	for _, lives := range []bool{false, true} {
		x := newWire(t, func(c *Config) { c.MaxSessions = 10 })
		var devices []*device
		for i := range 9 {
			devices = append(devices, x.mustConnect(addr(i), "dev", true))
		}
		devices[6].addr = addr(66)
		if !x.alive(devices[6]) { // it has moved
			t.Fatal("no answer")
		}
		x.w.now += time.Minute
		again := x.mustConnect(addr(66), "dev", true)
		if lives {
			devices[6].addr = addr(67)
			if !x.alive(devices[6]) {
				t.Fatal("a superseded session was ended while there is room")
			}
		}
		_, err := x.connect(addr(100), "dev", true)
		if s := x.stats(); lives && (err == nil || s.EvictedSuperseded != 0 || s.SessionsFull != 1) ||
			!lives && (err != nil || s.EvictedSuperseded != 1 || s.SessionsFull != 0) {
			t.Errorf("lives %t: %v, %+v", lives, err, s)
		}
		if x.alive(devices[6]) != lives || !x.alive(again) {
			t.Errorf("lives %t: the wrong session was ended", lives)
		}
		x.checkTables()
	}
}

// The operator's limit of silence: off unless set.
func TestSessionIdle(t *testing.T) {
	x := newWire(t, func(c *Config) { c.SessionIdle = 48 * time.Hour })
	asleep := x.mustConnect(addr(1), "dev-1", true)
	x.w.now += time.Hour
	awake := x.mustConnect(addr(2), "dev-2", false)
	x.w.now += 46 * time.Hour
	if !x.alive(awake) || x.stats().Sessions != 2 {
		t.Fatal("gone too early")
	}
	if next := x.w.next(); next > x.w.now+time.Hour {
		t.Fatalf("the worker sleeps until %v at %v", next, x.w.now)
	}
	start := x.w.now
	x.public = x.public[:0]
	for x.stats().Expired == 0 && x.w.now < start+2*time.Hour { // the sessions rest before that
		x.w.now = max(x.w.now, x.w.next())
		x.w.tick()
		x.w.out.flush()
	}
	if x.w.now > start+time.Hour {
		t.Errorf("the session ends at %v, %v after it could", x.w.now, x.w.now-start)
	}
	if level, description := x.alert(asleep); level != 1 || description != 0 {
		t.Errorf("alert %d, %d, want close_notify", level, description)
	}
	if x.alive(asleep) || !x.alive(awake) {
		t.Error("the wrong session was ended")
	}
	if s := x.stats(); s.Expired != 1 || s.Sessions != 1 {
		t.Errorf("%+v", s)
	}
	// Many at once are ended in portions.
	x = newWire(t, func(c *Config) { c.SessionIdle = time.Minute })
	for i := range 200 {
		x.mustConnect(addr(i), "dev", true)
	}
	x.w.now += time.Hour
	rounds := 0
	for ; x.w.next() <= x.w.now; rounds++ {
		x.w.tick()
		x.w.out.flush()
	}
	if s := x.stats(); s.Expired != 200 || rounds < 3 {
		t.Errorf("%d ended in %d rounds", s.Expired, rounds)
	}
	x = newWire(t, nil)
	x.mustConnect(addr(1), "dev", true)
	x.w.now += RestAfter
	x.w.tick()
	if x.w.next() != Never {
		t.Error("a session expires though no limit is set")
	}
}

// Random handshakes, moves, ends and pauses keep the tables in step.
func TestTablesUnderRandomUse(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	x := newWire(t, func(c *Config) { c.MaxSessions, c.SessionIdle = 30, 2*time.Hour })
	var devices []*device
	for i := range 6000 {
		phase := i / 1000 % 3
		identities := [...]int{20, 1, 40}[phase]
		x.w.now += time.Duration(rng.IntN([...]int{120, 30, 120}[phase])) * time.Second
		switch rng.IntN(4) {
		case 0, 1:
			d, err := x.connect(addr(rng.IntN(40)), fmt.Sprint("dev-", rng.IntN(identities)), rng.IntN(4) > 0)
			if err == nil {
				devices = append(devices, d)
			}
		default:
			if len(devices) == 0 {
				continue
			}
			d := devices[len(devices)-1-rng.IntN(min(len(devices), 40))]
			if d.cid && rng.IntN(3) == 0 {
				d.addr = addr(rng.IntN(40))
			}
			x.in(d.seal([]byte("x")), d.addr)
		}
		if i%50 == 0 {
			x.checkTables()
		}
	}
	x.checkTables()
	if s := x.stats(); s.EvictedSuperseded == 0 || s.EvictedOverShare == 0 || s.EvictedOwnIdentity == 0 || s.EvictedStale == 0 ||
		s.SessionsFull == 0 || s.Expired == 0 || s.Replaced == 0 {
		t.Errorf("not all cases were reached: %+v", s)
	}
}
