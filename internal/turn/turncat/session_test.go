package turncat

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pion/stun/v4"

	"github.com/weir-lb/weir/internal/turn/requests"
)

const second = int64(time.Second)

// fake is a TURN server in memory, as bad as a test wants it.
type fake struct {
	t      *testing.T
	s      session
	now    int64
	sent   [][]byte // not yet answered
	nonce  string
	users  map[string]string
	bound  string // user of the allocation
	strict bool   // the allocation is that user's alone (RFC 8656 section 7.2)
	life   uint32
	seen   []string
}

func newFake(t *testing.T, source Source) *fake {
	f := &fake{t: t, now: 1_700_000_000 * second, nonce: "n1", users: map[string]string{"u": "p"}, life: 600}
	f.s = session{peer: netip.MustParseAddrPort("192.0.2.7:5000"), credentials: source, lifetime: 10 * time.Minute, checkEvery: 10 * time.Second}
	f.s.send = func(b []byte) { f.sent = append(f.sent, bytes.Clone(b)) }
	return f
}

// answer takes the oldest request and returns the server's answer to it.
func (f *fake) answer() []byte {
	f.t.Helper()
	if len(f.sent) == 0 {
		f.t.Fatal("nothing was sent")
	}
	m := stun.Message{Raw: f.sent[0]}
	f.sent = f.sent[1:]
	if err := m.Decode(); err != nil {
		f.t.Fatal(err)
	}
	user, _ := m.Get(stun.AttrUsername)
	nonce, _ := m.Get(stun.AttrNonce)
	f.seen = append(f.seen, m.Type.Method.String()+" "+string(user))
	key := stun.NewLongTermIntegrity(string(user), "weir", f.users[string(user)])
	switch {
	case user == nil, f.users[string(user)] == "", key.Check(&m) != nil:
		return f.refuse(&m, 401)
	case string(nonce) != f.nonce:
		return f.refuse(&m, 438)
	case f.strict && f.bound != "" && f.bound != string(user):
		return f.refuse(&m, 441)
	}
	out := stun.New()
	out.Type, out.TransactionID = stun.NewType(m.Type.Method, stun.ClassSuccessResponse), m.TransactionID
	out.WriteHeader()
	switch m.Type.Method {
	case stun.MethodAllocate:
		f.bound = string(user)
		if err := requests.AddAddress(out, stun.AttrXORRelayedAddress, netip.MustParseAddrPort("192.0.2.1:50000")); err != nil {
			f.t.Fatal(err)
		}
		out.Add(stun.AttrLifetime, binary.BigEndian.AppendUint32(nil, f.life))
	case stun.MethodRefresh:
		asked, _ := m.Get(stun.AttrLifetime)
		out.Add(stun.AttrLifetime, binary.BigEndian.AppendUint32(nil, min(f.life, binary.BigEndian.Uint32(asked))))
	}
	if err := key.AddTo(out); err != nil {
		f.t.Fatal(err)
	}
	return out.Raw
}

func (f *fake) refuse(m *stun.Message, code stun.ErrorCode) []byte {
	out := stun.New()
	out.Type, out.TransactionID = stun.NewType(m.Type.Method, stun.ClassErrorResponse), m.TransactionID
	out.WriteHeader()
	stun.ErrorCodeAttribute{Code: code, Reason: []byte("no")}.AddTo(out)
	out.Add(stun.AttrRealm, []byte("weir"))
	out.Add(stun.AttrNonce, []byte(f.nonce))
	return out.Raw
}

// talk answers until nothing is left to answer, and returns the last verdict that requested something.
func (f *fake) talk() (last verdict) {
	for len(f.sent) > 0 {
		if v := f.s.receive(f.answer(), f.now); v != proceed {
			last = v
		}
	}
	return last
}

func (f *fake) open() {
	f.t.Helper()
	f.s.start(f.now)
	if v := f.talk(); v != opened || f.s.stage != ready {
		f.t.Fatalf("verdict %d, stage %d, %v", v, f.s.stage, f.s.err)
	}
	f.seen = nil
}

// advance lets time pass, tick by tick, and answers meanwhile.
func (f *fake) advance(d time.Duration) (last verdict) {
	for end := f.now + int64(d); f.now < end; {
		f.now = min(end, max(f.now+1, f.s.due()))
		if _, v := f.s.tick(f.now); v != proceed {
			last = v
		}
		if v := f.talk(); v != proceed {
			last = v
		}
	}
	return last
}

func TestSessionOpens(t *testing.T) {
	f := newFake(t, Static("u", "p"))
	f.s.start(f.now)
	if v := f.talk(); v != opened {
		t.Fatalf("verdict %d: %v", v, f.s.err)
	}
	if want := []string{"Allocate ", "Allocate u", "ChannelBind u"}; !slices.Equal(f.seen, want) {
		t.Errorf("%q, want %q", f.seen, want)
	}
	if f.s.relay != netip.MustParseAddrPort("192.0.2.1:50000") {
		t.Errorf("relay %v", f.s.relay)
	}
}

func TestSessionStaysAlive(t *testing.T) {
	f := newFake(t, Static("u", "p"))
	f.open()
	for range 60 { // an hour of silence, and nonces that end
		f.nonce += "x"
		if v := f.advance(time.Minute); v != proceed {
			t.Fatalf("verdict %d: %v", v, f.s.err)
		}
	}
	count := map[string]int{}
	for _, what := range f.seen {
		count[what]++
	}
	if count["Refresh u"] < 12 || count["Refresh u"] > 40 || count["ChannelBind u"] < 13 || count["ChannelBind u"] > 40 {
		t.Errorf("in an hour: %v; want a Refresh each 5 minutes, a ChannelBind each 4, and some asked twice", count)
	}
}

func TestSessionInUseIsChecked(t *testing.T) {
	f := newFake(t, Static("u", "p"))
	f.open()
	for range 6 {
		f.s.used = true
		f.advance(10 * time.Second)
	}
	if len(f.seen) < 5 {
		t.Errorf("in a minute of use: %q", f.seen)
	}
}

func TestSessionRetransmits(t *testing.T) {
	f := newFake(t, Static("u", "p"))
	begun := f.now
	f.s.start(f.now)
	first := f.sent[0]
	v := proceed
	for v == proceed {
		f.now = f.s.due()
		_, v = f.s.tick(f.now)
	}
	if v != lost || len(f.sent) != maxTries || !bytes.Equal(f.sent[maxTries-1], first) || f.now-begun != int64(requestTimeout) {
		t.Errorf("verdict %d after %v and %d requests: %v", v, time.Duration(f.now-begun), len(f.sent), f.s.err)
	}
}

// An answer that no one with the password signed is none.
func TestSessionBelievesOnlyWhoKnowsThePassword(t *testing.T) {
	f := newFake(t, Static("u", "p"))
	f.s.start(f.now)
	f.s.receive(f.answer(), f.now)
	forged := f.answer()
	forged[len(forged)-1] ^= 1
	if v := f.s.receive(forged, f.now); v != proceed || f.s.stage != allocating {
		t.Errorf("verdict %d, stage %d", v, f.s.stage)
	}
}

func TestSessionRefused(t *testing.T) {
	f := newFake(t, Static("u", "wrong"))
	f.s.start(f.now)
	if v := f.talk(); v != lost || !strings.Contains(f.s.err.Error(), `is "u" the right user`) {
		t.Errorf("verdict %d: %v", v, f.s.err)
	}
	if len(f.seen) > 2 {
		t.Errorf("asked over and over: %q", f.seen)
	}
}

func TestSessionFollowsAnotherServer(t *testing.T) {
	f := newFake(t, Static("u", "p"))
	f.s.start(f.now)
	m := stun.Message{Raw: f.sent[0]}
	if err := m.Decode(); err != nil {
		t.Fatal(err)
	}
	out := stun.Message{Raw: f.refuse(&m, 300)}
	if err := out.Decode(); err != nil {
		t.Fatal(err)
	}
	if err := (&stun.AlternateServer{IP: []byte{192, 0, 2, 9}, Port: 3479}).AddTo(&out); err != nil {
		t.Fatal(err)
	}
	if v := f.s.receive(out.Raw, f.now); v != lost || f.s.alternate != netip.MustParseAddrPort("192.0.2.9:3479") {
		t.Errorf("verdict %d, %v", v, f.s.alternate)
	}
}

func TestSessionIsGivenBack(t *testing.T) {
	f := newFake(t, Static("u", "p"))
	f.open()
	f.s.close(f.now)
	if v := f.talk(); v != closed || !slices.Equal(f.seen, []string{"Refresh u"}) {
		t.Errorf("verdict %d, %q", v, f.seen)
	}
	f = newFake(t, Static("u", "p")) // while Allocate is on its way
	f.s.start(f.now)
	f.s.close(f.now)
	if v := f.talk(); v != closed || f.seen[len(f.seen)-1] != "Refresh u" {
		t.Errorf("verdict %d, %q", v, f.seen)
	}
}

// windowed gives users whose credentials last a minute, and registers each with the server.
func windowed(f **fake) Source {
	return func(now time.Time) (Credentials, error) {
		end := now.Add(time.Minute).Truncate(time.Second)
		name := end.Format("150405")
		(*f).users[name] = "p"
		return Credentials{User: name, Password: "p", Expires: end}, nil
	}
}

func TestSessionRenewsItsCredentials(t *testing.T) {
	var f *fake
	f = newFake(t, windowed(&f))
	f.open()
	first := f.s.current
	if v := f.advance(10 * time.Minute); v != proceed {
		t.Fatalf("verdict %d: %v", v, f.s.err)
	}
	if !f.s.current.Expires.After(first.Expires.Add(8 * time.Minute)) {
		t.Errorf("after ten minutes still %+v", f.s.current)
	}
}

// coturn ties an allocation to its user name. The old one is used until the server takes it no longer.
func TestSessionTiedToItsUser(t *testing.T) {
	var f *fake
	f = newFake(t, windowed(&f))
	f.strict = true
	f.open()
	first := f.s.current
	if v := f.advance(50 * time.Second); v != proceed || f.s.current != first || !f.s.stuck {
		t.Fatalf("verdict %d, user %q, stuck %v: %v", v, f.s.current.User, f.s.stuck, f.s.err)
	}
	delete(f.users, first.User)
	if v := f.advance(20 * time.Second); v != expired || f.s.stage != ready {
		t.Errorf("verdict %d, stage %d: %v", v, f.s.stage, f.s.err)
	}
}

func FuzzServerMessages(f *testing.F) {
	t := new(testing.T)
	k := newFake(t, Static("u", "p"))
	k.s.start(k.now)
	for range 3 {
		answer := k.answer()
		f.Add(answer)
		k.s.receive(answer, k.now)
	}
	f.Add([]byte{0x40, 0, 0, 3, 'a', 'b', 'c', 0})
	f.Add([]byte{0, 0x17, 0, 0, 0x21, 0x12, 0xa4, 0x42, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11})
	f.Fuzz(func(t *testing.T, b []byte) {
		if data, ok := requests.ChannelData(b); ok && len(data) > len(b)-headerBytes {
			t.Errorf("%d bytes of data in %d", len(data), len(b))
		}
		if n, ok := requests.FrameSize(b); ok && n != 0 && n < headerBytes {
			t.Errorf("a frame of %d bytes", n)
		}
		dataIndication(bytes.Clone(b), netip.MustParseAddrPort("192.0.2.7:5000"))
		k := newFake(t, Static("u", "p"))
		k.s.start(k.now)
		k.s.receive(k.answer(), k.now)
		b = bytes.Clone(b)
		if len(b) >= 20 { // past the first check
			copy(b[4:20], k.s.message.Raw[4:20])
		}
		if v := k.s.receive(b, k.now); v == opened || k.s.stage == ready || k.s.stage == binding {
			t.Errorf("verdict %d, stage %d from a stranger's message", v, k.s.stage)
		}
	})
}
