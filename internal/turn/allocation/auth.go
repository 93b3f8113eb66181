package allocation

import (
	"encoding/base64"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pion/stun/v4"
)

// Password algorithms (RFC 8489, section 18.5).
const (
	algorithmMD5    = 1
	algorithmSHA256 = 2
)

const maxUser = 512 // bytes (RFC 8489, section 14.3: 508)

// credential is the sender of a request, and the key that protects the answer.
type credential struct {
	user   string // the user for quotas
	key    key
	sha256 bool // protects with MESSAGE-INTEGRITY-SHA256
	valid  bool
}

// authenticate checks the long-term credential of a request (RFC 8489, section 9.2.4). It checks the nonce first:
// without a fresh one, the sender does not learn whether a user exists, and no password is hashed.
func (x *exchange) authenticate() Reason {
	m := &x.m
	if m.integrity == 0 && m.integrity256 == 0 {
		return Challenged
	}
	user, hasUser := m.get(stun.AttrUsername)
	realm, hasRealm := m.get(stun.AttrRealm)
	nonce, hasNonce := m.get(stun.AttrNonce)
	if !hasUser || !hasRealm || !hasNonce || len(user) > maxUser || !utf8.Valid(user) {
		return BadRequest
	}
	sha, ok := x.algorithm(nonce)
	if !ok {
		return BadRequest
	}
	if !x.t.macs.nonceHolds(nonce, x.policy, x.path.Client.Addr(), x.now) {
		return StaleNonce
	}
	x.proven = true
	x.t.shared.rates.prove(x.path.Client.Addr(), x.now)
	if x.realm = x.policy.Realm; string(realm) != x.realm {
		a := x.t.Find(x.path) // its client may know the realm from before a reload
		if a == nil || a.realm != string(realm) {
			return Unauthorized
		}
		x.realm = a.realm
	}
	return x.verify(user, sha)
}

// algorithm returns how the client made its key, and whether the request's attributes about it are consistent (RFC
// 8489, section 9.2.4).
func (x *exchange) algorithm(nonce []byte) (sha, ok bool) {
	list, hasList := x.m.get(stun.AttrPasswordAlgorithms)
	one, hasOne := x.m.get(stun.AttrPasswordAlgorithm)
	if !x.policy.Auth.SHA256 || !nonceHasFeatures(nonce) || !hasList && !hasOne {
		return false, true
	}
	if !hasList || !hasOne || string(list) != string(passwordAlgorithms()) || len(one) < 2 {
		return false, false
	}
	switch uint16(one[0])<<8 | uint16(one[1]) {
	case algorithmMD5:
		return false, true
	case algorithmSHA256:
		return true, true
	}
	return false, false
}

func passwordAlgorithms() []byte {
	return []byte{0, algorithmMD5, 0, 0, 0, algorithmSHA256, 0, 0}
}

// knows reports whether a user may exist.
func (a *Auth) knows(user string) bool {
	_, ok := a.Users[user]
	return a.Mode == AuthStatic && ok || a.Mode == AuthEphemeral
}

// verify finds the password that matches the request's integrity attribute.
func (x *exchange) verify(user []byte, sha bool) Reason {
	switch x.policy.Auth.Mode {
	case AuthStatic:
		password, ok := x.policy.Auth.Users[string(user)]
		if !x.proves(user, []byte(password), sha) || !ok { // in this order, so that an unknown user takes as long as a known one
			x.cred.valid = false
			return Unauthorized
		}
		x.cred.user = string(user)
		return OK
	case AuthEphemeral:
		expiry, id, ok := ephemeral(string(user))
		if !ok {
			return Unauthorized
		}
		wall := x.now
		if x.policy.Wall != nil {
			wall = x.policy.Wall()
		}
		if expiry <= wall/1e9 {
			return CredentialExpired
		}
		for _, secret := range x.policy.Auth.Secrets {
			if x.proves(user, x.t.macs.password([]byte(secret), user), sha) {
				x.cred.user = id
				return OK
			}
		}
	}
	return Unauthorized
}

// ephemeral parses a user name of the TURN REST draft. Its parts are separated by colons; the first integer is the
// Unix second at which it expires, the other parts are the user id. Without other parts, the whole name is the user
// id.
func ephemeral(user string) (expiry int64, id string, ok bool) {
	parts := strings.Split(user, ":")
	for i, part := range parts {
		n, err := strconv.ParseInt(part, 10, 64)
		if err != nil {
			continue
		}
		if id = strings.Join(append(parts[:i:i], parts[i+1:]...), ":"); id == "" {
			id = user
		}
		return n, id, true
	}
	return 0, "", false
}

// password returns base64(HMAC-SHA1(secret, user)). The result is valid until the next call.
func (c *macs) password(secret, user []byte) []byte {
	sum := c.hmac(c.sha1, secret, nil, user)
	c.word = base64.StdEncoding.AppendEncode(c.word[:0], sum)
	return c.word
}

// proves reports whether the request's integrity was made with a password, and stores the key for the answer. If a
// request has both integrity attributes, the SHA-256 one counts.
func (x *exchange) proves(user, password []byte, sha bool) bool {
	c, m := x.t.macs, &x.m
	k := &x.cred.key
	c.longTerm(k, user, []byte(x.realm), password, sha)
	if m.integrity256 != 0 {
		_, value, _ := attribute(m.raw, m.integrity256)
		x.cred.sha256 = true
		x.cred.valid = equal(c.integrity(c.sha256, k.slice(), m.raw, m.integrity256, len(value))[:len(value)], value)
		return x.cred.valid
	}
	_, value, _ := attribute(m.raw, m.integrity)
	x.cred.valid = equal(c.integrity(c.sha1, k.slice(), m.raw, m.integrity, sha1Size), value)
	return x.cred.valid
}
