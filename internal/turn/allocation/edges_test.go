package allocation

import (
	"crypto/hmac"
	"crypto/md5"  //nolint:gosec // of RFC 8489
	"crypto/sha1" //nolint:gosec // of RFC 8489
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pion/stun/v4"
)

// Our HMAC is crypto/hmac's, for keys and messages of all lengths, one after the other in the same place.
func TestHMACIsTheLibrarys(t *testing.T) {
	c := newMACs()
	text := []byte(strings.Repeat("0123456789abcdef", 20))
	for n := range 200 {
		for _, f := range []struct {
			h   hash.Hash
			new func() hash.Hash
		}{{c.sha1, sha1.New}, {c.sha256, sha256.New}, {c.md5, md5.New}} {
			want := hmac.New(f.new, text[:n])
			want.Write(text[1 : 2*n/3+1])
			want.Write(text[3 : n+3])
			if got := c.hmac(f.h, text[:n], text[1:2*n/3+1], text[3:n+3]); !slices.Equal(got, want.Sum(nil)) {
				t.Fatalf("key of %d bytes: %x, want %x", n, got, want.Sum(nil))
			}
		}
	}
}

// What a STUN message may not look like, and where the part of one ends that counts.
func TestMessageStructure(t *testing.T) {
	build := func(attributes ...attr) []byte {
		m := &stun.Message{Type: stun.NewType(stun.MethodAllocate, stun.ClassRequest)}
		m.WriteHeader()
		for i, a := range attributes {
			if a.Type == stun.AttrFingerprint && a.Value == nil { // the right one
				rest := uint32(8 * (len(attributes) - i)) // what follows it has 8 bytes too
				m.Length += rest
				m.WriteLength()
				sum := crc32.ChecksumIEEE(m.Raw) ^ fingerprintXOR
				m.Length -= rest
				a.Value = binary.BigEndian.AppendUint32(nil, sum)
			}
			m.Add(a.Type, a.Value)
		}
		return m.Raw
	}
	sized := func(kind stun.AttrType, n int) attr { return attr{Type: kind, Value: make([]byte, n)} }
	sha1At := func(n int) attr { return sized(stun.AttrMessageIntegrity, n) }
	sha256At := func(n int) attr { return sized(stun.AttrMessageIntegritySHA256, n) }
	name := attr{Type: stun.AttrUsername, Value: []byte("user")} // 8 bytes with its header
	fingerprint := attr{Type: stun.AttrFingerprint}
	for what, c := range map[string]struct {
		raw  []byte
		want Reason
		end  int
	}{
		"nothing":                     {build(), OK, 20},
		"an attribute":                {build(name), OK, 28},
		"integrity":                   {build(name, sha1At(20)), OK, 28},
		"integrity of 16 bytes":       {build(name, sha1At(16)), Malformed, 0},
		"integrity of 24 bytes":       {build(name, sha1At(24)), Malformed, 0},
		"integrity twice":             {build(name, sha1At(20), name, sha1At(20)), OK, 28},
		"SHA-256":                     {build(name, sha256At(32)), OK, 28},
		"SHA-256 of 16 bytes":         {build(name, sha256At(16)), OK, 28},
		"SHA-256 of 12 bytes":         {build(name, sha256At(12)), Malformed, 0},
		"SHA-256 of 18 bytes":         {build(name, sha256At(18)), Malformed, 0},
		"SHA-256 of 36 bytes":         {build(name, sha256At(36)), Malformed, 0},
		"SHA-256 twice":               {build(name, sha256At(32), name, sha256At(32)), OK, 28},
		"both":                        {build(name, sha1At(20), sha256At(32)), OK, 28},
		"SHA-256 first":               {build(name, sha256At(32), sha1At(20)), OK, 28},
		"fingerprint":                 {build(name, fingerprint), OK, 28},
		"fingerprint behind":          {build(sha1At(20), fingerprint), OK, 20},
		"fingerprint of another":      {build(name, sized(stun.AttrFingerprint, 4)), BadFingerprint, 0},
		"fingerprint of 8 bytes":      {build(name, sized(stun.AttrFingerprint, 8)), BadFingerprint, 0},
		"fingerprint of 0 bytes":      {build(name, sized(stun.AttrFingerprint, 0)), BadFingerprint, 0},
		"something behind it":         {build(name, fingerprint, name), Malformed, 0},
		"cut header":                  {build()[:19], Malformed, 0},
		"cut attribute":               {build(name)[:24], Malformed, 0},
		"the first bits are not zero": {append([]byte{0x40}, build()[1:]...), Malformed, 0},
		"another cookie":              {append(append(slices.Clone(build()[:4]), 1, 2, 3, 4), build()[8:]...), NoCookie, 0},
		"length of 3":                 {append(append(slices.Clone(build()[:2]), 0, 3), append(slices.Clone(build()[4:]), 0, 0, 0)...), Malformed, 0},
		"an attribute beyond the end": {append(append(slices.Clone(build()[:2]), 0, 4), append(slices.Clone(build()[4:]), 0, 6, 0, 1)...), Malformed, 0},
	} {
		m, r := parse(c.raw)
		if r != c.want || r == OK && m.end != c.end {
			t.Errorf("%s: %v, the part that counts ends at %d, want %v, %d", what, r, m.end, c.want, c.end)
		}
		if r != OK {
			continue
		}
		if m.fingerprint != strings.HasPrefix(what, "fingerprint") || (m.integrity != 0) != (strings.HasPrefix(what, "integrity") || what == "both" || what == "fingerprint behind") ||
			(m.integrity256 != 0) != (strings.HasPrefix(what, "SHA-256") || what == "both") {
			t.Errorf("%s: %+v", what, m)
		}
		if id, ok := ConnectionID(c.raw); ok {
			t.Errorf("%s has the connection id %d", what, id)
		}
	}
}

// Addresses are written and read as the library does it, and of no other size or family.
func TestAddressesAreTheLibrarys(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		m := &stun.Message{}
		for i := range m.TransactionID {
			m.TransactionID[i] = byte(r.Uint32())
		}
		m.WriteHeader()
		var four [4]byte
		var six [16]byte
		for i := range six {
			six[i], four[i%4] = byte(r.Uint32()), byte(r.Uint32())
		}
		for _, a := range []netip.AddrPort{netip.AddrPortFrom(netip.AddrFrom4(four), uint16(r.Uint32())), netip.AddrPortFrom(netip.AddrFrom16(six), uint16(r.Uint32()))} {
			ours := appendXORAddress(slices.Clone(m.Raw), stun.AttrXORPeerAddress, a, m.Raw)
			theirs := &stun.Message{TransactionID: m.TransactionID}
			theirs.WriteHeader()
			x := stun.XORMappedAddress{IP: a.Addr().AsSlice(), Port: int(a.Port())}
			if err := x.AddToAs(theirs, stun.AttrXORPeerAddress); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(ours[20:], theirs.Raw[20:]) {
				t.Fatalf("%s: %x, want %x", a, ours[20:], theirs.Raw[20:])
			}
			value := ours[24:]
			if got, ok := readXORAddress(value, m.Raw); !ok || got != a {
				t.Fatalf("%s is read as %s, %t", a, got, ok)
			}
			for family := range byte(4) {
				for n := range len(value) + 2 {
					b := append(slices.Clone(value), 0, 0)[:n]
					if n > 1 {
						b[1] = family
					}
					if _, ok := readXORAddress(b, m.Raw); ok != (n == 8 && family == 1 || n == 20 && family == 2) {
						t.Fatalf("%d bytes of family %d: %t", n, family, ok)
					}
				}
			}
		}
	}
}

// Each part of a record is restored at its bounds and refused beyond them.
func TestRecordBounds(t *testing.T) {
	old := newWorld(t, basic())
	_, a := full(old)
	good := taken(old, a)
	zone := func(n int) netip.Addr { return netip.MustParseAddr("fe80::1").WithZone(strings.Repeat("z", n)) }
	permissions := func(r *Record, n int) {
		r.Permissions = nil
		for i := range n {
			r.Permissions = append(r.Permissions, PermissionRecord{netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), r.Expires})
		}
	}
	for what, c := range map[string]struct {
		refused bool
		change  func(*Record)
	}{
		"as it is":                  {false, func(*Record) {}},
		"id 1":                      {false, func(r *Record) { r.ID = 1 }},
		"the largest id":            {false, func(r *Record) { r.ID = 1<<53 - 1 }},
		"id 0":                      {true, func(r *Record) { r.ID = 0 }},
		"one more":                  {true, func(r *Record) { r.ID = 1 << 53 }},
		"the longest user":          {false, func(r *Record) { r.User = strings.Repeat("u", 512) }},
		"one more byte":             {true, func(r *Record) { r.User = strings.Repeat("u", 513) }},
		"user beyond UTF-8":         {true, func(r *Record) { r.User = "u\xff" }},
		"the longest realm":         {false, func(r *Record) { r.Realm = strings.Repeat("r", maxText) }},
		"a longer realm":            {true, func(r *Record) { r.Realm = strings.Repeat("r", maxText+1) }},
		"realm beyond UTF-8":        {true, func(r *Record) { r.Realm = "\xff" }},
		"another version":           {true, func(r *Record) { r.Version++ }},
		"client with a zone":        {false, func(r *Record) { r.Path.Client = netip.AddrPortFrom(zone(32), 1) }},
		"client with a longer zone": {true, func(r *Record) { r.Path.Client = netip.AddrPortFrom(zone(33), 1) }},
		"server without port":       {true, func(r *Record) { r.Path.Server = netip.AddrPortFrom(r.Path.Server.Addr(), 0) }},
		"no client":                 {true, func(r *Record) { r.Path.Client = netip.AddrPort{} }},
		"DTLS":                      {false, func(r *Record) { r.Path.Transport = DTLS }},
		"another transport":         {true, func(r *Record) { r.Path.Transport = DTLS + 1 }},
		"two families":              {false, func(r *Record) { r.Relay = []netip.AddrPort{r.Relay[0], address("[2001:db8::1]:5")} }},
		"the other way round":       {false, func(r *Record) { r.Relay = []netip.AddrPort{address("[2001:db8::1]:5"), r.Relay[0]} }},
		"three relays": {true, func(r *Record) {
			r.Relay = []netip.AddrPort{r.Relay[0], address("[2001:db8::1]:5"), address("[2001:db8::1]:6")}
		}},
		"two of one family":        {true, func(r *Record) { r.Relay = []netip.AddrPort{r.Relay[0], address("192.0.2.9:5")} }},
		"relay with a zone":        {true, func(r *Record) { r.Relay = []netip.AddrPort{netip.AddrPortFrom(zone(1), 5)} }},
		"4096 permissions":         {false, func(r *Record) { permissions(r, 4096) }},
		"4097 permissions":         {true, func(r *Record) { permissions(r, 4097) }},
		"permission for nobody":    {true, func(r *Record) { r.Permissions = []PermissionRecord{{netip.Addr{}, r.Expires}} }},
		"first channel":            {false, func(r *Record) { r.Channels = []ChannelRecord{{MinChannel, address("10.0.0.1:5"), r.Expires}} }},
		"last channel":             {false, func(r *Record) { r.Channels = []ChannelRecord{{MaxChannel, address("10.0.0.1:5"), r.Expires}} }},
		"channel before the first": {true, func(r *Record) { r.Channels = []ChannelRecord{{MinChannel - 1, address("10.0.0.1:5"), r.Expires}} }},
		"channel behind the last":  {true, func(r *Record) { r.Channels = []ChannelRecord{{MaxChannel + 1, address("10.0.0.1:5"), r.Expires}} }},
		"channel to no port":       {true, func(r *Record) { r.Channels = []ChannelRecord{{MinChannel, address("10.0.0.1:0"), r.Expires}} }},
		"transaction of 11 bytes":  {true, func(r *Record) { r.Transaction = r.Transaction[:22] }},
		"transaction of 13 bytes":  {true, func(r *Record) { r.Transaction += "00" }},
		"transaction of words":     {true, func(r *Record) { r.Transaction = strings.Repeat("xy", 12) }},
		"token of 7 bytes":         {true, func(r *Record) { v := *r.Reservation; v.Token = v.Token[2:]; r.Reservation = &v }},
		"token of words":           {true, func(r *Record) { v := *r.Reservation; v.Token = strings.Repeat("xy", 8); r.Reservation = &v }},
		"reservation of no port": {true, func(r *Record) {
			v := *r.Reservation
			v.Relay = netip.AddrPortFrom(v.Relay.Addr(), 0)
			r.Reservation = &v
		}},
		"reservation that is over": {false, func(r *Record) { v := *r.Reservation; v.Expires = 1; r.Reservation = &v }},
		"no reservation":           {false, func(r *Record) { r.Reservation = nil }},
		"ends as it begins":        {false, func(r *Record) { r.Created = r.Expires }},
		"ends before it begins":    {true, func(r *Record) { r.Created = r.Expires + 1 }},
	} {
		r := good
		c.change(&r)
		p := basic()
		p.Quotas.Permissions = 5000
		w := newWorld(t, p)
		b, err := w.table.Restore(r, w.now)
		if (err != nil) != c.refused {
			t.Errorf("%s: %v", what, err)
		}
		if err == nil && (len(b.permissions.keys) != len(r.Permissions) || len(b.channels.keys) != len(r.Channels) || (len(w.held) > 0) != (r.Reservation != nil && r.Reservation.Expires > 1)) {
			t.Errorf("%s: %d permissions, %d channels, %d reserved ports", what, len(b.permissions.keys), len(b.channels.keys), len(w.held))
		}
		if err := w.check(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		text, err := json.Marshal(r)
		if err != nil { // a transport without a name
			continue
		}
		if _, err := DecodeRecord(text); (err != nil) != c.refused && !strings.Contains(what, "beyond UTF-8") { // JSON replaces those
			t.Errorf("%s, decoded: %v", what, err)
		}
	}
	r := good
	r.Created = -1
	text, _ := json.Marshal(r)
	if _, err := DecodeRecord(text); err == nil || !strings.Contains(err.Error(), "1970") {
		t.Errorf("created before 1970: %v", err)
	}
}

// Shifting a record moves each of its times by the same, but those that would leave the range, and times that never were;
// the record that it was copied from keeps its own.
func TestShift(t *testing.T) {
	for _, at := range []int64{1, 1e18, math.MaxInt64, math.MinInt64, math.MaxInt64 - 5, math.MinInt64 + 5} {
		for _, by := range []int64{0, 5, -5, 6, -6, math.MaxInt64, math.MinInt64} {
			r := Record{
				Created: at, Expires: at, Permissions: []PermissionRecord{{Expires: at}}, Channels: []ChannelRecord{{Expires: at}},
				Reservation: &ReservationRecord{Expires: at}, Up: TrafficRecord{Last: at}, Down: TrafficRecord{Last: at},
			}
			copied := r
			copied.Shift(by)
			want := at + by
			if by > 0 && want < at || by < 0 && want > at { // beyond the range
				want = at
			}
			for what, got := range map[string]int64{
				"created": copied.Created, "expires": copied.Expires, "permission": copied.Permissions[0].Expires, "channel": copied.Channels[0].Expires,
				"reservation": copied.Reservation.Expires, "up": copied.Up.Last, "down": copied.Down.Last,
			} {
				if got != want {
					t.Errorf("%s %d by %d: %d, want %d", what, at, by, got, want)
				}
			}
			if r.Permissions[0].Expires != at || r.Channels[0].Expires != at || r.Reservation.Expires != at {
				t.Error("the record that was copied has changed")
			}
		}
	}
	r := Record{}
	if r.Shift(7); r.Up.Last != 0 || r.Down.Last != 0 || r.Created != 7 || r.Reservation != nil {
		t.Errorf("%+v", r)
	}
}

// Expire returns when it must be called again: for whatever ends first, reservations too, in their order.
func TestExpireReturnsTheNextTime(t *testing.T) {
	w := newWorld(t, basic())
	if next := w.table.Expire(w.now); next != 0 {
		t.Errorf("an empty table expires at %d", next)
	}
	reserve := attr{Type: stun.AttrEvenPort, Value: []byte{0x80}}
	_, first := w.allocated(4000, lifetime(3600), reserve)
	w.after(7 * time.Second)
	w.allocated(4001, lifetime(3600), reserve)
	c, a := w.allocated(4002, lifetime(600))
	c.must(OK, permitMethod, c.peer("10.0.0.2:0"))
	c.must(OK, bindMethod, channel(0x4000), c.peer("10.0.0.1:5000"))
	r1, r2 := start+int64(reservationTime), start+7e9+int64(reservationTime)
	for _, want := range []int64{r1, r2, start + 7e9 + 300e9, start + 7e9 + 600e9, start + 3600e9, start + 7e9 + 3600e9, 0} {
		if next := w.table.Expire(w.now); next != want {
			t.Fatalf("at %v the next is %v, want %v", time.Duration(w.now-start), time.Duration(next-start), time.Duration(want-start))
		}
		if want == 0 {
			break
		}
		w.now = want - 1
		if next := w.table.Expire(w.now); next != want {
			t.Fatalf("%v before its time: the next is %v", time.Duration(want-start), time.Duration(next-start))
		}
		w.now = want
		if held := map[int64]int{r1: 2, r2: 1}[want]; held > 0 && len(w.held) != held {
			t.Errorf("%d ports are reserved, want %d", len(w.held), held)
		}
	}
	if w.table.Len() != 0 || len(w.held) != 0 || first.Relay == a.Relay {
		t.Errorf("%d allocations, %d reserved", w.table.Len(), len(w.held))
	}
	if err := w.check(); err != nil {
		t.Error(err)
	}
}

// Policies at their bounds, and what is filled in.
func TestPolicyBounds(t *testing.T) {
	for what, c := range map[string]struct {
		refused bool
		change  func(*Policy)
	}{
		"as it is":                  {false, func(*Policy) {}},
		"the longest realm":         {false, func(p *Policy) { p.Realm = strings.Repeat("r", MaxRealm) }},
		"a longer realm":            {true, func(p *Policy) { p.Realm = strings.Repeat("r", MaxRealm+1) }},
		"realm beyond UTF-8":        {true, func(p *Policy) { p.Realm = "\xff" }},
		"the longest software":      {false, func(p *Policy) { p.Software = strings.Repeat("s", 128) }},
		"longer software":           {true, func(p *Policy) { p.Software = strings.Repeat("s", 129) }},
		"no nonce key":              {true, func(p *Policy) { p.NonceKeys = nil }},
		"nobody to authenticate":    {false, func(p *Policy) { p.NonceKeys, p.Auth = nil, Auth{Mode: AuthNone} }},
		"another mode":              {true, func(p *Policy) { p.Auth.Mode = AuthNone + 1 }},
		"a short nonce key":         {true, func(p *Policy) { p.NonceKeys = append(p.NonceKeys, make([]byte, 15)) }},
		"a user without name":       {true, func(p *Policy) { p.Auth.Users = map[string]string{"": "x"} }},
		"an empty secret":           {true, func(p *Policy) { p.Auth.Secrets = []string{"a", ""} }},
		"lifetime of a second":      {false, func(p *Policy) { p.Lifetimes.Channel = time.Second }},
		"lifetime of less":          {true, func(p *Policy) { p.Lifetimes.Channel = time.Second - 1 }},
		"lifetime of a day":         {false, func(p *Policy) { p.Lifetimes.Nonce = 24 * time.Hour }},
		"lifetime of more":          {true, func(p *Policy) { p.Lifetimes.Nonce = 24*time.Hour + 1 }},
		"negative lifetime":         {true, func(p *Policy) { p.Lifetimes.Default = -1 }},
		"lifetime that is too long": {true, func(p *Policy) { p.Lifetimes.Permission = 25 * time.Hour }},
	} {
		p := basic()
		c.change(&p)
		if _, err := p.withDefaults(); (err != nil) != c.refused {
			t.Errorf("%s: %v", what, err)
		}
	}
	got, err := Policy{Auth: Auth{Mode: AuthNone}, Lifetimes: Lifetimes{Default: 2 * time.Hour}}.withDefaults()
	if err != nil || got.Realm != "weir" || got.Lifetimes != (Lifetimes{2 * time.Hour, 2 * time.Hour, 5 * time.Minute, 10 * time.Minute, time.Hour}) {
		t.Errorf("%+v, %v", got, err)
	}
	u, q := got.Unauthenticated, got.Quotas
	if u.PerPrefix != 100 || u.PrefixBurst != 1000 || u.Bindings != 2000 || u.Proven != 20000 || u.Total != 50000 || u.TotalBurst != 50000 || u.PrefixesAtOnce != 131072 {
		t.Errorf("%+v", u)
	}
	if q.Allocations != unlimited || q.AllocationsPerUser != unlimited || q.Permissions != 256 || q.Channels != 256 || q.Connections != 64 || q.Burst != 64<<10 {
		t.Errorf("%+v", q)
	}
	got, err = Policy{Auth: Auth{Mode: AuthNone}, Quotas: Quotas{Bandwidth: 1 << 20, Permissions: 1 << 20, Channels: -1, Connections: 1}, Unauthenticated: RateLimit{PrefixBurst: -1, Total: -1}}.withDefaults()
	if err != nil || got.Quotas.Burst != 1<<18 || got.Quotas.Permissions != 4096 || got.Quotas.Channels != 4096 || got.Quotas.Connections != 1 || got.Unauthenticated.PrefixBurst != unlimited || got.Unauthenticated.Total != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

// The limits of ChannelData, and of a nonce that offers features.
func TestFrameEdges(t *testing.T) {
	frame := func(number, size uint16, have int) []byte {
		return append(binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, number), size), make([]byte, have)...)
	}
	for what, c := range map[string]struct {
		b    []byte
		want Reason
		size int
	}{
		"empty":            {frame(0x4000, 0, 0), OK, 0},
		"last channel":     {frame(MaxChannel, 4, 4), OK, 4},
		"padded":           {frame(0x4000, 5, 8), OK, 5},
		"cut":              {frame(0x4000, 5, 4), Malformed, 0},
		"cut header":       {frame(0x4000, 0, 0)[:3], Malformed, 0},
		"before the first": {frame(0x3fff, 0, 0), Malformed, 0},
		"behind the last":  {frame(MaxChannel+1, 0, 0), Malformed, 0},
		"nothing":          {nil, Malformed, 0},
	} {
		number, payload, r := ParseChannelData(c.b)
		if r != c.want || len(payload) != c.size || r == OK && number != binary.BigEndian.Uint16(c.b) {
			t.Errorf("%s: %#x, %d bytes, %v", what, number, len(payload), r)
		}
	}
	for nonce, want := range map[string]bool{"": false, nonceCookie: false, nonceCookie + nonceFeatures: false, nonceCookie + nonceFeatures + "x": true, "x" + nonceCookie + nonceFeatures: false} {
		if nonceHasFeatures([]byte(nonce)) != want {
			t.Errorf("nonce %q has features: %t", nonce, !want)
		}
	}
	for r, want := range map[Reason]string{OK: "ok 0", TryAlternate: "try_alternate 300", Malformed: "malformed 0", Moved: "moved 0", 250: "reason(250) 0"} {
		if got := fmt.Sprint(r, r.Code()); got != want {
			t.Errorf("reason %d is %q", uint8(r), got)
		}
	}
}

// An error answer also contains SOFTWARE and every attribute that the server does not know.
func TestErrorAnswersHaveDetails(t *testing.T) {
	p := basic()
	p.Software = "weir test"
	w := newWorld(t, p)
	c, _ := w.allocated(4000)
	if w.changes == 0 {
		t.Error("a new allocation is no change")
	}
	for n := 1; n <= 4; n++ {
		var unknown []attr
		var want []byte
		for i := range n {
			kind := 0x7ff0 + uint16(i)
			unknown, want = append(unknown, attr{Type: stun.AttrType(kind), Value: word(7)}), binary.BigEndian.AppendUint16(want, kind)
		}
		m := c.must(UnknownAttribute, refreshMethod, unknown...)
		if got, err := m.Get(stun.AttrUnknownAttributes); err != nil || !slices.Equal(got, want) {
			t.Errorf("%d unknown attributes: %x, %v", n, got, err)
		}
		if got, err := m.Get(stun.AttrSoftware); err != nil || string(got) != p.Software {
			t.Errorf("software %q, %v", got, err)
		}
	}
}

// Traffic through a channel is counted for the cluster that its peer is of.
func TestClustersOfPeers(t *testing.T) {
	p := basic()
	p.Admit = func(_ uint16, _ bool, peer netip.AddrPort) (uint16, bool) { return peer.Port() % 100, true }
	w := newWorld(t, p)
	c, a := w.allocated(4000)
	c.must(OK, bindMethod, channel(0x4000), c.peer("10.0.0.1:5007"))
	c.must(OK, permitMethod, c.peer("10.0.0.2:0"))
	for peer, want := range map[string]uint16{"10.0.0.1:5007": 7, "10.0.0.2:5011": 11, "10.0.0.2:5012": 12, "10.0.0.3:5013": 0} {
		_, _ = a.Inbound(address(peer), w.now)
		if got := a.Cluster(address(peer)); got != want {
			t.Errorf("%s is of cluster %d, want %d", peer, got, want)
		}
	}
}

// ConnectionBind names a connection that waits, in time, from a path that has no allocation.
func TestConnectionBindEdges(t *testing.T) {
	w := newWorld(t, basic())
	c, a := w.tcpClient(4000)
	waits := func() uint32 {
		id := c.dial("10.0.0.1:5000")
		w.table.ConnectDone(a, id, nil, nil, w.now)
		return id
	}
	bind := func(path Path, attributes ...attr) Reason {
		data := *c
		raw := data.message(stun.MethodConnectionBind, stun.ClassRequest, attributes...)
		_, _, r := w.table.ConnectionBind(path, raw, nil, w.now)
		c.serial = data.serial
		return r
	}
	other := c.path
	other.Client = address("198.51.100.1:60000")
	id := waits()
	for what, got := range map[string]Reason{
		"no id":                      bind(other),
		"id of a wrong size":         bind(other, attr{Type: stun.AttrConnectionID, Value: word(id)[:2]}),
		"id of nobody":               bind(other, attr{Type: stun.AttrConnectionID, Value: word(id + 1)}),
		"the path of the allocation": bind(c.path, attr{Type: stun.AttrConnectionID, Value: word(id)}),
	} {
		if got != BadRequest {
			t.Errorf("%s: %v", what, got)
		}
	}
	w.now += int64(bindTime) - 1 // no one called Expire meanwhile
	if r := bind(other, attr{Type: stun.AttrConnectionID, Value: word(id)}); r != OK {
		t.Errorf("in the last moment: %v", r)
	}
	w.table.ConnectionClosed(a, id)
	w.table.ConnectionClosed(a, id+1) // unknown
	id = waits()
	w.now += int64(bindTime)
	if r := bind(other, attr{Type: stun.AttrConnectionID, Value: word(id)}); r != BadRequest {
		t.Errorf("too late: %v", r)
	}
}
