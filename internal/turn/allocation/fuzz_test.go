package allocation

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"

	"github.com/pion/stun/v4"
)

// Any bytes from anybody: no panic, nothing kept, no answer over three times the request, and one that the library reads.
func FuzzRequest(f *testing.F) {
	seeds := newWorld(f, basic())
	c, _ := seeds.allocated(4000)
	c.fingerprint = true
	f.Add(c.message(stun.MethodBinding, stun.ClassRequest))
	f.Add(c.message(allocateMethod, stun.ClassRequest, transport(17), lifetime(600)))
	f.Add(c.message(bindMethod, stun.ClassRequest, channel(0x4000), c.peer("10.0.0.1:5")))
	f.Add(c.message(stun.MethodSend, stun.ClassIndication, c.peer("[2001:db8::1]:5"), attr{Type: stun.AttrData, Value: []byte("x")}))
	f.Add(c.message(stun.MethodConnectionBind, stun.ClassRequest, attr{Type: stun.AttrConnectionID, Value: word(5)}))
	f.Add(unhex(request5769))
	f.Add(unhex(sha256Request8489))
	f.Fuzz(func(t *testing.T, msg []byte) {
		p := basic()
		p.NonceKeys = [][]byte{[]byte("not that of the seeds")}
		w := newWorld(t, p)
		path := w.client(4000, UDP).path
		before := slices.Clone(msg)
		answer, r := w.table.Request(path, msg, nil, w.now)
		if string(before) != string(msg) {
			t.Error("the message was changed")
		}
		if len(answer) > 3*len(msg) {
			t.Errorf("%d bytes answer %d: %v", len(answer), len(msg), r)
		}
		if len(answer) > 0 && stun.Decode(answer, &stun.Message{}) != nil {
			t.Errorf("answer %x", answer)
		}
		if _, _, r := w.table.ConnectionBind(path, msg, nil, w.now); r == OK {
			t.Error("bound nothing")
		}
		if w.table.Len() != 0 {
			t.Error("a client without nonce has an allocation")
		}
	})
}

// Any attributes from a client with credentials and an allocation: the books stay right.
func FuzzAuthenticated(f *testing.F) {
	seeds := newWorld(f, basic())
	c := seeds.client(4000, UDP)
	for _, m := range [][]byte{
		c.message(allocateMethod, 0, transport(17), attr{Type: stun.AttrEvenPort, Value: []byte{0x80}}),
		c.message(allocateMethod, 0, transport(17), familyOf(attrAdditionalFamily, 2)),
		c.message(refreshMethod, 0, lifetime(0), familyOf(stun.AttrRequestedAddressFamily, 1)),
		c.message(permitMethod, 0, c.peer("10.0.0.1:5"), c.peer("10.0.0.2:5")),
		c.message(bindMethod, 0, channel(0x4000), c.peer("10.0.0.1:5")),
		c.message(connectMethod, 0, c.peer("10.0.0.1:5")),
	} {
		f.Add(m[1], m[20:], false)
		f.Add(m[1], m[20:], true)
	}
	f.Fuzz(func(t *testing.T, method byte, attributes []byte, has bool) {
		w := newWorld(t, basic())
		c := w.client(4000, UDP)
		c.must(Challenged, allocateMethod, transport(17))
		if has {
			c.must(OK, allocateMethod, transport(17), familyOf(attrAdditionalFamily, 2))
		}
		// The library refuses what does not parse: then there is nothing to sign.
		raw := append(appendHeader(nil, uint16(method&^0x10), len(attributes)&^3, c.nextID()), attributes[:len(attributes)&^3]...)
		m := &stun.Message{}
		if len(attributes) > 1000 || stun.Decode(raw, m) != nil || m.Contains(stun.AttrMessageIntegrity) || m.Contains(stun.AttrMessageIntegritySHA256) || m.Contains(stun.AttrFingerprint) {
			return
		}
		m.Add(stun.AttrUsername, []byte(c.user))
		m.Add(stun.AttrRealm, []byte(c.realm))
		m.Add(stun.AttrNonce, []byte(c.nonce))
		if err := stun.NewLongTermIntegrity(c.user, c.realm, c.password).AddTo(m); err != nil {
			t.Fatal(err)
		}
		answer, r := w.table.Request(c.path, m.Raw, nil, w.now)
		if len(answer) > 0 && stun.Decode(answer, &stun.Message{}) != nil {
			t.Errorf("%v: answer %x", r, answer)
		}
		if err := w.check(); err != nil {
			t.Error(err)
		}
		w.now += 7200e9
		w.table.Expire(w.now)
		if err := w.check(); err != nil || w.table.Len() != 0 || len(w.held) != 0 || len(w.offloaded) != 0 {
			t.Errorf("left %d, %v", w.table.Len(), err)
		}
	})
}

// Send finds the same peer and payload as the library does.
func FuzzSend(f *testing.F) {
	seeds := newWorld(f, basic())
	c, _ := seeds.allocated(4000)
	for _, fingerprint := range []bool{false, true} {
		c.fingerprint = fingerprint
		f.Add(c.message(stun.MethodSend, stun.ClassIndication, c.peer("10.0.0.1:5"), attr{Type: stun.AttrData, Value: []byte("hello")}))
	}
	f.Add(c.message(stun.MethodSend, stun.ClassIndication, c.peer("[2001:db8::1]:5"), attr{Type: stun.AttrDontFragment}, attr{Type: stun.AttrData}))
	w := newWorld(f, basic())
	own, _ := w.allocated(4000)
	own.must(OK, permitMethod, own.peer("10.0.0.1:0"))
	f.Fuzz(func(t *testing.T, msg []byte) {
		_, peer, payload, r := w.table.Send(own.path, msg, w.now)
		if r != OK {
			return
		}
		m := &stun.Message{}
		if err := stun.Decode(msg, m); err != nil {
			t.Fatal(err)
		}
		var x stun.XORMappedAddress
		if x.GetFromAs(m, stun.AttrXORPeerAddress) != nil {
			return // the library wants the reserved byte to be 0, which RFC 8489, section 14.1 has receivers ignore
		}
		want, err := m.Get(stun.AttrData)
		if err != nil || string(want) != string(payload) || relayOf(t, m, stun.AttrXORPeerAddress) != peer {
			t.Errorf("%v %q, the library reads %q, %v", peer, payload, want, err)
		}
	})
}

// What parses comes out again as it was, and a stream's frame holds it.
func FuzzParseChannelData(f *testing.F) {
	f.Add([]byte{0x40, 0, 0, 5, 'h', 'e', 'l', 'l', 'o', 0, 0, 0})
	f.Add([]byte{0x7f, 0xff, 0, 0})
	f.Add([]byte{0x40, 1, 0xff, 0xff, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		number, payload, r := ParseChannelData(b)
		size, ok := FrameSize(b)
		if r != OK {
			return
		}
		var head [ChannelHeaderSize]byte
		PutChannelHeader(head[:], number, len(payload))
		if string(head[:]) != string(b[:4]) || !ok || size != 4+len(payload)+Padding(len(payload)) {
			t.Errorf("%x: %#x with %d bytes, frame of %d %v", b, number, len(payload), size, ok)
		}
	})
}

// A record that is read can be restored, and gives an equal record.
func FuzzRestore(f *testing.F) {
	seeds := newWorld(f, basic())
	_, a := full(seeds)
	b, err := json.Marshal(seeds.table.Record(a))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"version":1,"id":1,"listener":"tcp","path":{"client":"[2001:db8::5]:1","server":"[2001:db8::1]:2","transport":"tcp"},"user":"u","relay":["192.0.2.1:3","[2001:db8::1]:3"],"tcp":true,"transaction":"000000000000000000000000","granted":600,"created":0,"expires":1900000000000000000,"permissions":[{"peer":"2001:db8::7","expires":1900000000000000000}],"up":{"packets":0,"bytes":0,"last":0},"down":{"packets":0,"bytes":0,"last":0}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := DecodeRecord(b)
		if err != nil {
			return
		}
		w := newWorld(t, basic())
		a, err := w.table.Restore(r, w.now)
		if err != nil {
			return
		}
		if err := w.check(); err != nil {
			t.Error(err)
		}
		first := taken(w, a)
		w.table.Delete(a, Moved)
		w.table.Expire(w.now + 100e9) // its reservation
		first.Reservation = nil
		a, err = w.table.Restore(first, w.now)
		if err != nil {
			t.Fatal(err)
		}
		if again := taken(w, a); !reflect.DeepEqual(again, first) {
			t.Errorf("%+v\nwas %+v", again, first)
		}
		w.after(7200e9)
		if err := w.check(); err != nil || w.table.Len() != 0 {
			t.Errorf("%d left, %v", w.table.Len(), err)
		}
	})
}
