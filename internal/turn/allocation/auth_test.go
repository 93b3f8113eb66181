package allocation

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/pion/stun/v4"
)

// Nonces hold for an hour, across a change of keys, and for one client address only.
func TestNonceKeys(t *testing.T) {
	w := newWorld(t, basic())
	c, _ := w.allocated(4000, lifetime(3600))
	p := basic()
	p.NonceKeys = [][]byte{[]byte("another key, new"), p.NonceKeys[0]}
	w.set(p)
	c.must(OK, refreshMethod)
	p.NonceKeys = p.NonceKeys[:1]
	w.set(p)
	c.must(StaleNonce, refreshMethod)
	c.must(OK, refreshMethod, lifetime(3600))
	w.now += int64(time.Hour) - 1e9
	c.must(OK, refreshMethod)
	w.now += 1e9
	c.must(StaleNonce, refreshMethod)
	c.must(OK, refreshMethod)
	w.now -= int64(2 * time.Minute) // a clock set back
	c.must(StaleNonce, refreshMethod)
}

// A forged nonce is refused whatever its form.
func TestNonceForms(t *testing.T) {
	w := newWorld(t, basic())
	p := w.shared.Policy()
	client := netip.MustParseAddr("198.51.100.1")
	good := string(w.table.macs.appendNonce(nil, p.NonceKeys, client, w.now, false))
	if !w.table.macs.nonceHolds([]byte(good), p, client, w.now) {
		t.Fatal("a fresh nonce does not hold")
	}
	for i := range good {
		b := []byte(good)
		if b[i]++; w.table.macs.nonceHolds(b, p, client, w.now) {
			t.Errorf("holds with byte %d changed: %s", i, b)
		}
	}
	short := string(w.table.macs.appendShortNonce(nil, p.NonceKeys, client, w.now))
	for _, later := range []int64{-40, 0, 3599 - nonceStep} {
		if len(short) != shortNonceSize || !w.table.macs.nonceHolds([]byte(short), p, client, w.now+later*1e9) {
			t.Errorf("a short nonce does not hold %d s later", later)
		}
	}
	for _, later := range []int64{-120, 3600, nonceStep << 16, nonceStep << 32} { // also where the time that is sent comes again
		if w.table.macs.nonceHolds([]byte(short), p, client, w.now+later*1e9) {
			t.Errorf("a short nonce holds %d s later", later)
		}
	}
	if w.table.macs.nonceHolds([]byte(short), p, netip.MustParseAddr("198.51.100.2"), w.now) {
		t.Error("a short nonce holds for another address")
	}
	for i := range short {
		b := []byte(short)
		if b[i]++; w.table.macs.nonceHolds(b, p, client, w.now) {
			t.Errorf("short one holds with byte %d changed: %s", i, b)
		}
	}
	for _, bad := range []string{"", "x", good + "A", good[1:], nonceCookie, nonceCookie + nonceFeatures, "====" + good[4:]} {
		if w.table.macs.nonceHolds([]byte(bad), p, client, w.now) {
			t.Errorf("%q holds", bad)
		}
	}
}

// Ephemeral credentials: expiry and user id in any order, two secrets, quota by user id, renewal by the same user.
func TestEphemeral(t *testing.T) {
	p := basic()
	p.Auth = Auth{Mode: AuthEphemeral, Secrets: []string{"new", "old"}}
	p.Quotas.AllocationsPerUser = 2
	w := newWorld(t, p)
	port := uint16(4000)
	login := func(secret, user string, want Reason) *client {
		t.Helper()
		port++
		c := w.client(port, UDP)
		c.user, c.password = user, Password(secret, user)
		c.must(Challenged, allocateMethod, transport(17))
		c.must(want, allocateMethod, transport(17), lifetime(3600))
		return c
	}
	expiry := start/1e9 + 100
	alice := login("new", fmt.Sprintf("%d:alice", expiry), OK)
	login("old", fmt.Sprintf("alice:%d", expiry+1), OK)
	login("new", fmt.Sprintf("%d:alice", expiry+2), QuotaReached)
	login("old", fmt.Sprint(expiry), OK)
	login("old", fmt.Sprintf("%d:a:b", expiry), OK)
	login("new", fmt.Sprintf("%d", start/1e9), CredentialExpired)
	if a := w.table.Find(alice.path); a.User != "alice" {
		t.Errorf("user %q", a.User)
	}
	w.now += 100e9
	alice.must(CredentialExpired, refreshMethod)
	if w.table.Find(alice.path) == nil {
		t.Error("the allocation went with its credential")
	}
	alice.user = fmt.Sprintf("%d:alice", expiry+1000)
	alice.password = Password("new", alice.user)
	alice.must(OK, refreshMethod)
	alice.user = fmt.Sprintf("%d:bob", expiry+1000)
	alice.password = Password("new", alice.user)
	alice.must(WrongCredentials, refreshMethod)
}

// A credential that was taken away does not end the allocation, but cannot refresh it.
func TestRevokedCredential(t *testing.T) {
	w := newWorld(t, basic())
	c, a := w.allocated(4000)
	c.must(OK, permitMethod, c.peer("10.0.0.1:1"))
	p := basic()
	p.Auth.Users = map[string]string{"user1": "changed"}
	w.set(p)
	if _, r := a.Inbound(address("10.0.0.1:1"), w.now); r != OK {
		t.Errorf("inbound: %v", r)
	}
	c.must(Unauthorized, refreshMethod)
	c.must(Unauthorized, permitMethod, c.peer("10.0.0.2:1"))
	c.password = "changed"
	c.must(OK, refreshMethod)
}

// A new realm is for new clients: an allocation's client goes on with the one it knows, here and in another process.
func TestRealmChanges(t *testing.T) {
	w := newWorld(t, basic())
	c, a := w.allocated(4000)
	stranger := known(t, newWorld(t, basic()))
	stranger.w, stranger.path.Client = w, netip.AddrPortFrom(c.path.Client.Addr(), 4001)
	p := basic()
	p.Realm = "new"
	w.set(p)
	c.must(OK, refreshMethod)
	stranger.must(Unauthorized, allocateMethod, transport(17))
	stranger.realm = "new"
	stranger.must(OK, allocateMethod, transport(17))
	r := taken(w, a)
	w.table.Delete(a, Moved)
	if _, err := w.table.Restore(r, w.now); err != nil {
		t.Fatal(err)
	}
	c.must(OK, refreshMethod)
}

// Mode none takes even what was allocated before out of reach, and the zero mode lets no one in.
func TestModes(t *testing.T) {
	w := newWorld(t, basic())
	c, _ := w.allocated(4000)
	p := basic()
	p.Auth = Auth{Mode: AuthNone}
	w.set(p)
	c.must(BadRequest, refreshMethod)
	p = basic()
	p.Auth = Auth{}
	w.set(p)
	c.must(Unauthorized, refreshMethod)
}

// SHA-256 by RFC 8489: offered with the nonce's features where the request pays for the longer answer; used by the
// client for key and integrity; a downgrade that an attacker forged is refused.
func TestSHA256(t *testing.T) {
	p := basic()
	p.Auth.SHA256 = true
	w := newWorld(t, p)
	c := w.client(4000, UDP)
	if m := c.must(Challenged, allocateMethod, transport(17)); m.Contains(stun.AttrPasswordAlgorithms) {
		t.Errorf("%d bytes answer a request of 28", len(m.Raw))
	}
	c.nonce = ""
	m := c.must(Challenged, allocateMethod, transport(17), attr{Type: stun.AttrSoftware, Value: []byte("a client with a name")})
	offered, err := m.Get(stun.AttrPasswordAlgorithms)
	if err != nil || string(offered) != string(passwordAlgorithms()) || !nonceHasFeatures([]byte(c.nonce)) {
		t.Fatalf("offered %x, %v, nonce %q", offered, err, c.nonce)
	}
	list := attr{Type: stun.AttrPasswordAlgorithms, Value: passwordAlgorithms()}
	choice := attr{Type: stun.AttrPasswordAlgorithm, Value: []byte{0, algorithmSHA256, 0, 0}}
	answer, r := c.sha256Request(list, choice)
	if r != OK || !answer.Contains(stun.AttrMessageIntegritySHA256) || answer.Contains(stun.AttrMessageIntegrity) {
		t.Fatalf("%v: %v", r, answer)
	}
	at := len(answer.Raw) - 36
	sum := w.table.macs.integrity(w.table.macs.sha256, c.sha256Key(), answer.Raw, at, 32)
	if string(sum) != string(answer.Raw[at+4:]) {
		t.Error("the answer's integrity is wrong")
	}
	c.must(OK, refreshMethod) // SHA-1 and MD5 go on to work
	if _, r := c.sha256Request(attr{Type: stun.AttrPasswordAlgorithms, Value: []byte{0, 1, 0, 0}}, choice); r != BadRequest {
		t.Errorf("a forged list: %v", r)
	}
	if _, r := c.sha256Request(choice); r != BadRequest {
		t.Errorf("a choice without list: %v", r)
	}
	if _, r := c.sha256Request(list, attr{Type: stun.AttrPasswordAlgorithm, Value: []byte{0, 9, 0, 0}}); r != BadRequest {
		t.Errorf("an unknown algorithm: %v", r)
	}
}

func (c *client) sha256Key() []byte {
	sum := sha256.Sum256([]byte(c.user + ":" + c.realm + ":" + c.password))
	return sum[:]
}

// sha256Request is an Allocate with MESSAGE-INTEGRITY-SHA256.
func (c *client) sha256Request(attributes ...attr) (*stun.Message, Reason) {
	c.noIntegrity = true
	attributes = append(attributes, transport(17), attr{Type: stun.AttrUsername, Value: []byte(c.user)},
		attr{Type: stun.AttrRealm, Value: []byte(c.realm)}, attr{Type: stun.AttrNonce, Value: []byte(c.nonce)})
	raw := c.message(allocateMethod, stun.ClassRequest, attributes...)
	c.noIntegrity = false
	var k key
	k.size = copy(k.bytes[:], c.sha256Key())
	return c.send(newMACs().seal(raw, 0, &credential{key: k, valid: true, sha256: true}, c.fingerprint))
}

// What stands behind the integrity attribute is anybody's, and is not read (RFC 8489, section 14.5).
func TestUnprotectedAttributes(t *testing.T) {
	w := newWorld(t, basic())
	c, a := w.allocated(4000)
	raw := c.message(refreshMethod, stun.ClassRequest)
	raw = appendNumber(raw, stun.AttrLifetime, 0)
	raw = appendNumber(raw, 0x7ff0, 0) // would be unknown
	binary.BigEndian.PutUint16(raw[2:], uint16(len(raw)-20))
	if _, r := c.send(raw); r != OK || w.table.Find(c.path) != a {
		t.Errorf("%v, the allocation is there: %v", r, w.table.Find(c.path) == a)
	}
	raw = c.message(refreshMethod, stun.ClassRequest, lifetime(0))
	raw[len(raw)-1] ^= 1
	if _, r := c.send(raw); r != Unauthorized || w.table.Find(c.path) != a {
		t.Errorf("with integrity changed: %v", r)
	}
}
