package requests_test

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/pion/stun/v4"

	"github.com/weir-lb/weir/internal/turn/requests"
)

var peer = netip.MustParseAddrPort("[2001:db8::1]:3480")

func build(t *testing.T, setters ...stun.Setter) *stun.Message {
	t.Helper()
	m, err := stun.Build(setters...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func challenge(t *testing.T, realm, nonce string) *stun.Message {
	t.Helper()
	return build(t, stun.NewType(stun.MethodAllocate, stun.ClassErrorResponse), stun.CodeUnauthorized, stun.NewRealm(realm), stun.NewNonce(nonce))
}

// A request is unsigned before the challenge and signed by user and realm after it, also for another user and with a
// new nonce. It always ends with a valid FINGERPRINT.
func TestRequestsAreSignedAfterTheChallenge(t *testing.T) {
	var auth requests.Auth
	auth.SetUser("user", "password")
	check := func(user, password, realm, nonce string) {
		t.Helper()
		m := stun.New()
		if err := (requests.Request{Method: stun.MethodChannelBind, Peer: peer, Channel: 0x4001}).Build(m, &auth); err != nil {
			t.Fatal(err)
		}
		got := &stun.Message{Raw: bytes.Clone(m.Raw)}
		if err := got.Decode(); err != nil {
			t.Fatal(err)
		}
		if err := stun.Fingerprint.Check(got); err != nil {
			t.Error(err)
		}
		if address, err := requests.Address(got, stun.AttrXORPeerAddress); err != nil || address != peer {
			t.Errorf("peer %v: %v", address, err)
		}
		if user == "" {
			if got.Contains(stun.AttrMessageIntegrity) || got.Contains(stun.AttrUsername) {
				t.Error("signed before the challenge")
			}
			return
		}
		if err := stun.NewLongTermIntegrity(user, realm, password).Check(got); err != nil {
			t.Errorf("signature of %s: %v", user, err)
		}
		if b, _ := got.Get(stun.AttrNonce); string(b) != nonce {
			t.Errorf("nonce %q", b)
		}
	}
	check("", "", "", "")
	if !auth.Challenge(challenge(t, "realm", "one")) {
		t.Fatal("not challenged")
	}
	check("user", "password", "realm", "one")
	auth.SetUser("other", "secret")
	check("other", "secret", "realm", "one")
	if !auth.Challenge(build(t, stun.NewNonce("two"))) { // 438 may leave the realm out
		t.Fatal("a new nonce was not taken")
	}
	check("other", "secret", "realm", "two")
	if long := string(make([]byte, 764)); auth.Challenge(build(t, stun.RawAttribute{Type: stun.AttrNonce, Value: []byte(long)})) || auth.Challenge(build(t)) {
		t.Error("a nonce that is too long, or none, was taken")
	}
	check("other", "secret", "realm", "two")
}

func TestResponse(t *testing.T) {
	var auth requests.Auth
	auth.SetUser("user", "password")
	auth.Challenge(challenge(t, "realm", "nonce"))
	m := stun.New()
	if err := (requests.Request{Method: stun.MethodRefresh, Lifetime: time.Minute}).Build(m, &auth); err != nil {
		t.Fatal(err)
	}
	id := stun.NewTransactionIDSetter(m.TransactionID)
	success := stun.NewType(stun.MethodRefresh, stun.ClassSuccessResponse)
	key := stun.NewLongTermIntegrity("user", "realm", "password")
	for name, c := range map[string]struct {
		raw  []byte
		want requests.Outcome
	}{
		"signed":            {build(t, id, success, key).Raw, requests.Granted},
		"unsigned":          {build(t, id, success).Raw, requests.Forged},
		"another key":       {build(t, id, success, stun.NewLongTermIntegrity("user", "realm", "guess")).Raw, requests.Forged},
		"another id":        {build(t, stun.TransactionID, success, key).Raw, requests.Unrelated},
		"another method":    {build(t, id, stun.NewType(stun.MethodAllocate, stun.ClassSuccessResponse), key).Raw, requests.Unrelated},
		"our own request":   {m.Raw, requests.Unrelated},
		"an error":          {build(t, id, stun.NewType(stun.MethodRefresh, stun.ClassErrorResponse), stun.CodeStaleNonce).Raw, requests.Refused},
		"not STUN":          {[]byte("hello"), requests.Unrelated},
		"cut in the middle": {build(t, id, success, key).Raw[:24], requests.Unrelated},
	} {
		if _, got := requests.Response(c.raw, m, &auth); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestParseGrant(t *testing.T) {
	success := stun.NewType(stun.MethodAllocate, stun.ClassSuccessResponse)
	lifetime := stun.RawAttribute{Type: stun.AttrLifetime, Value: []byte{0, 0, 0, 60}}
	m := build(t, success, lifetime)
	if _, err := requests.ParseGrant(m); err == nil {
		t.Error("no error without a relay address")
	}
	if err := requests.AddAddress(m, stun.AttrXORRelayedAddress, peer); err != nil {
		t.Fatal(err)
	}
	if g, err := requests.ParseGrant(m); err != nil || g.Relay != peer || g.Lifetime != time.Minute {
		t.Errorf("%+v: %v", g, err)
	}
	m = build(t, success)
	if err := requests.AddAddress(m, stun.AttrXORRelayedAddress, peer); err != nil {
		t.Fatal(err)
	}
	if _, err := requests.ParseGrant(m); err == nil {
		t.Error("no error without a lifetime")
	}
}

// What a server writes is cut, and cannot change the terminal.
func TestErrorCodeIsPrintable(t *testing.T) {
	m := build(t, stun.ErrorCodeAttribute{Code: 486, Reason: []byte("a\x1b[2J" + string(bytes.Repeat([]byte("b"), 200)))})
	if code, reason := requests.ErrorCode(m); code != 486 || len(reason) != 80 || reason[:5] != "a?[2J" {
		t.Errorf("%d %q", code, reason)
	}
	if code, reason := requests.ErrorCode(build(t)); code != 0 || reason != "" {
		t.Errorf("%d %q of no code", code, reason)
	}
}
