package allocation

import (
	"encoding/json"
	"errors"
	"math"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pion/stun/v4"
)

// full is an allocation with all that a record can hold.
func full(w *world) (*client, *Allocation) {
	w.t.Helper()
	c := w.client(4000, DTLS)
	c.must(Challenged, allocateMethod, transport(17))
	c.must(OK, allocateMethod, transport(17), lifetime(3600), attr{Type: stun.AttrEvenPort, Value: []byte{0x80}}, attr{Type: stun.AttrDontFragment})
	c.must(OK, permitMethod, c.peer("10.0.0.2:0"))
	w.after(10 * time.Second)
	c.must(OK, bindMethod, channel(0x4000), c.peer("10.0.0.1:5000"))
	c.must(OK, bindMethod, channel(0x4001), c.peer("10.0.0.1:5001"))
	a := w.table.Find(c.path)
	a.Up.Add(3, 300, w.now)
	a.Down.Add(2, 200, w.now)
	return c, a
}

// taken is a record as another process gets it.
func taken(w *world, a *Allocation) Record {
	w.t.Helper()
	r := w.table.Record(a)
	r.Listener = "udp"
	b, err := json.Marshal(r)
	if err != nil {
		w.t.Fatal(err)
	}
	back, err := DecodeRecord(b)
	if err != nil {
		w.t.Fatalf("%v in %s", err, b)
	}
	back.Path.Listener = 1
	return back
}

// A record goes through JSON into another process, where everything goes on: relays, channels, reservation, lifetimes,
// the answer to a retransmitted Allocate, and the same record again.
func TestRecordRoundTrip(t *testing.T) {
	old := newWorld(t, basic())
	c := old.client(4000, DTLS)
	c.must(Challenged, allocateMethod, transport(17))
	raw := c.message(allocateMethod, stun.ClassRequest, transport(17), lifetime(3600), attr{Type: stun.AttrEvenPort, Value: []byte{0x80}})
	first, _ := old.table.Request(c.path, raw, nil, old.now)
	c.must(OK, bindMethod, channel(0x4000), c.peer("10.0.0.1:5000"))
	c.must(OK, permitMethod, c.peer("10.0.0.2:0"))
	a := old.table.Find(c.path)
	a.Up.Add(3, 300, old.now)
	r := taken(old, a)

	w := newWorld(t, basic())
	c.w = w
	b, err := w.table.Restore(r, w.now)
	if err != nil {
		t.Fatal(err)
	}
	if b.Relay != a.Relay || b.ID != a.ID || b.Expires != a.Expires || b.Up.Bytes.Load() != 300 || w.open[b].Exact != a.Relay || w.changes == 0 {
		t.Errorf("restored %+v of %+v", b, r)
	}
	ch := b.Channel(0x4000)
	if n, r := b.Inbound(address("10.0.0.1:5000"), w.now); n != 0x4000 || r != OK || !w.offloaded[ch] || ch.Cluster != 7 {
		t.Errorf("channel: %#x %v", n, r)
	}
	if _, r := b.Inbound(address("10.0.0.2:1"), w.now); r != OK {
		t.Errorf("permission: %v", r)
	}
	if again := taken(w, b); !reflect.DeepEqual(again, r) {
		t.Errorf("the record changed: %+v\nwas %+v", again, r)
	}
	if second, _ := w.table.Request(c.path, raw, nil, w.now); string(second) != string(first) {
		t.Error("a retransmitted Allocate gets another answer")
	}
	c.must(OK, refreshMethod)
	if err := w.check(); err != nil || len(w.held) != 1 {
		t.Errorf("held %v, %v", w.held, err)
	}
	w.after(time.Hour)
	if err := w.check(); err != nil || w.table.Len() != 0 || len(w.held) != 0 {
		t.Errorf("%d left, held %v, %v", w.table.Len(), w.held, err)
	}
}

// What is over or in the way is not restored, what is not admitted any more is suspended; nothing lives longer than the policy lets it.
// What a client was sent stays: the retransmission of its Allocate is answered with the public address in the next process.
func TestRestoreKeepsThePublicAddress(t *testing.T) {
	old := newWorld(t, basic())
	c := old.client(4000, UDP)
	c.must(Challenged, allocateMethod, transport(17))
	raw := c.message(allocateMethod, stun.ClassRequest, transport(17))
	if _, r := old.table.Request(c.path, raw, nil, old.now); r != OK {
		t.Fatal(r)
	}
	a := old.table.Find(c.path)
	a.Public[V4] = netip.MustParseAddr("198.51.100.7") // as Relays.Open does
	sent, _ := old.table.Request(c.path, raw, nil, old.now)

	w := newWorld(t, basic())
	b, err := w.table.Restore(taken(old, a), w.now)
	if err != nil || b.Public != a.Public || b.Relay != a.Relay || b.AnnouncedRelay(V4).Addr() != a.Public[V4] || b.AnnouncedRelay(V6).IsValid() {
		t.Fatalf("%+v, %v", b, err)
	}
	m := &stun.Message{Raw: sent}
	var relayed stun.XORMappedAddress
	if err := errors.Join(m.Decode(), relayed.GetFromAs(m, stun.AttrXORRelayedAddress)); err != nil || relayed.IP.String() != "198.51.100.7" || relayed.Port != int(a.Relay[V4].Port()) {
		t.Errorf("sent %v, %v", relayed, err)
	}
	if again, _ := w.table.Request(c.path, raw, nil, w.now); string(again) != string(sent) {
		t.Errorf("answered differently after the restart: %x, not %x", again, sent)
	}
}

func TestRestoreRefuses(t *testing.T) {
	old := newWorld(t, basic())
	_, a := full(old)
	r := taken(old, a)
	w := newWorld(t, basic())
	if _, err := w.table.Restore(r, r.Expires); !errors.Is(err, ErrOver) {
		t.Errorf("after its end: %v", err)
	}
	w.openError = errors.New("address in use")
	if _, err := w.table.Restore(r, w.now); !errors.Is(err, w.openError) || w.shared.Stats().Allocations != 0 {
		t.Errorf("no relay: %v, %+v", err, w.shared.Stats())
	}
	w.openError = nil
	p := basic()
	p.Quotas = Quotas{Allocations: 1, AllocationsPerUser: 1}
	p.Lifetimes.Max = 10 * time.Minute
	p.Admit = func(_ uint16, _ bool, peer netip.AddrPort) (uint16, bool) {
		return 1, peer.Addr() == netip.MustParseAddr("10.0.0.1") && peer.Port() != 5001
	}
	w.set(p)
	w.now = start + int64(4*time.Minute)
	b, err := w.table.Restore(r, w.now)
	if err != nil {
		t.Fatal(err)
	}
	permissions, channels, _, suspended := b.Counts()
	if permissions != 2 || channels != 2 || suspended != 2 || len(w.offloaded) != 1 || b.Expires != w.now+int64(10*time.Minute) {
		t.Errorf("%d permissions, %d channels, %d suspended, expires in %v", permissions, channels, suspended, time.Duration(b.Expires-w.now))
	}
	w.set(basic()) // the routes of before
	if _, _, _, suspended := b.Counts(); suspended != 0 || len(w.offloaded) != 2 {
		t.Errorf("admitted again: %d suspended, %d offloaded", suspended, len(w.offloaded))
	}
	w.set(p)
	if _, err := w.table.Restore(r, w.now); !errors.Is(err, ErrExists) {
		t.Errorf("twice: %v", err)
	}
	r.Path.Client = address("198.51.100.9:1")
	c, err := w.table.Restore(r, w.now) // over the quota, with an id that is taken
	if err != nil || c.ID == b.ID || c.ID == 0 {
		t.Errorf("%v, id %v and %v", err, c, b)
	}
	if err := w.check(); err != nil {
		t.Error(err)
	}
}

// A record of another server gives no one what an Allocate would not: not an unknown user, none over the quotas, none while
// the server drains, and no longer lifetime.
func TestImportKeepsToTheLimits(t *testing.T) {
	old := newWorld(t, basic())
	_, a := full(old)
	r := taken(old, a)
	for name, test := range map[string]struct {
		change func(p *Policy, r *Record)
		want   error
	}{
		"as it was":       {func(*Policy, *Record) {}, nil},
		"an unknown user": {func(_ *Policy, r *Record) { r.User = "nobody" }, ErrUser},
		"no users at all": {func(p *Policy, _ *Record) { p.Auth = Auth{Mode: AuthNone} }, ErrUser},
		"an ephemeral user": {func(p *Policy, r *Record) {
			p.Auth, r.User = Auth{Mode: AuthEphemeral, Secrets: []string{"s"}}, "nobody"
		}, nil},
		"the quota of all":        {func(p *Policy, _ *Record) { p.Quotas.Allocations = 1 }, ErrQuota}, // with its reserved port it counts twice
		"the quota of the user":   {func(p *Policy, _ *Record) { p.Quotas.AllocationsPerUser = 1 }, ErrQuota},
		"while the server drains": {func(p *Policy, _ *Record) { p.Draining = true }, ErrDraining},
		"a lifetime of years":     {func(_ *Policy, r *Record) { r.Expires = math.MaxInt64 }, nil},
	} {
		p, r := basic(), r
		test.change(&p, &r)
		w := newWorld(t, p)
		b, err := w.table.Import(r, w.now)
		if !errors.Is(err, test.want) || (err == nil) != (test.want == nil) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
		if err == nil && b.Expires > w.now+int64(time.Hour) {
			t.Errorf("%s: it lives for %v", name, time.Duration(b.Expires-w.now))
		}
		if err := w.check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Records from elsewhere are read strictly.
func TestDecodeRecordRefuses(t *testing.T) {
	w := newWorld(t, basic())
	_, a := full(w)
	r := w.table.Record(a)
	r.Listener = "udp"
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	good := string(b)
	if _, err := DecodeRecord(b); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string][2]string{
		"version":             {`"version":1`, `"version":2`},
		"unknown key":         {`"version":1`, `"version":1,"x":1`},
		"id 0":                {`,"listener"`, `,"id":0,"listener"`},
		"user":                {`"user":"user1"`, `"user":""`},
		"transport":           {`"transport":"dtls"`, `"transport":"sctp"`},
		"no relay":            {`"relay":["192.0.2.1:50002"]`, `"relay":[]`},
		"relay without port":  {`"relay":["192.0.2.1:50002"]`, `"relay":["192.0.2.1:0"]`},
		"two of a family":     {`"relay":["192.0.2.1:50002"]`, `"relay":["192.0.2.1:50002","192.0.2.1:50004"]`},
		"public twice":        {`"dont_fragment"`, `"relay_public":["198.51.100.7","198.51.100.8"],"dont_fragment"`},
		"public of no family": {`"dont_fragment"`, `"relay_public":["2001:db8::7"],"dont_fragment"`},
		"public nothing":      {`"dont_fragment"`, `"relay_public":[""],"dont_fragment"`},
		"mapped public":       {`"dont_fragment"`, `"relay_public":["::ffff:198.51.100.7"],"dont_fragment"`},
		"mapped relay":        {`"relay":["192.0.2.1:50002"]`, `"relay":["[::ffff:192.0.2.1]:50002"]`},
		"client":              {`"client":"198.51.100.1:4000"`, `"client":"198.51.100.1:0"`},
		"channel number":      {`"number":16384`, `"number":5`},
		"channel twice":       {`"number":16384`, `"number":16385`},
		"peer twice":          {`"peer":"10.0.0.1:5000"`, `"peer":"10.0.0.1:5001"`},
		"permission twice":    {`"peer":"10.0.0.2"`, `"peer":"10.0.0.1"`},
		"zone":                {`"peer":"10.0.0.2"`, `"peer":"fe80::1%eth0"`},
		"transaction":         {`"transaction":"`, `"transaction":"00`},
		"token":               {`"token":"`, `"token":"00`},
		"channels over TCP":   {`"dont_fragment":true`, `"tcp":true`},
		"expires first":       {`"created":`, `"created":9`},
		"something behind it": {`"version":1`, `"version":1}{"x":1`},
	} {
		bad := strings.Replace(good, change[0], change[1], 1)
		if bad == good {
			t.Errorf("%s: nothing was changed in %s", name, good)
		}
		if _, err := DecodeRecord([]byte(bad)); err == nil {
			t.Errorf("%s: read from %s", name, bad)
		}
	}
	if _, err := DecodeRecord([]byte(strings.Repeat(" ", maxRecord) + good)); err == nil {
		t.Error("too long and read")
	}
	if _, err := DecodeRecord([]byte(good + " \n")); err != nil {
		t.Errorf("space behind it: %v", err)
	}
}
