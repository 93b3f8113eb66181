package allocation

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/pion/stun/v4"
)

func unhex(s string) []byte {
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		panic(err) // a constant of this file
	}
	return b
}

// The messages of RFC 5769 and RFC 8489, B.1 (with erratum 6268).
const (
	request5769 = `00010058 2112a442 b7e7a701bc34d686fa87dfae 80220010 5354554e207465737420636c69656e74 00240004 6e0001ff
		80290008 932ff9b151263b36 00060009 6576746a3a68367659202020 00080014 9aeaa70cbfd8cb56781ef2b5b2d3f249c1b571a2
		80280004 e57a3bcf`
	response4 = `0101003c 2112a442 b7e7a701bc34d686fa87dfae 8022000b 7465737420766563746f7220 00200008 0001a147e112a643
		00080014 2b91f599fd9e90c38c7489f92af9ba53f06be7d7 80280004 c07d4c96`
	response6 = `01010048 2112a442 b7e7a701bc34d686fa87dfae 8022000b 7465737420766563746f7220 00200014 0002a147 0113a9faa5d3f179
		bc25f4b5bed2b9d9 00080014 a382954e4be67bf11784c97c8292c275bfe3ed41 80280004 c8fb0b4c`
	longTerm5769 = `00010060 2112a442 78ad3433c6ad72c029da412e 00060012 e3839ee38388e383aae38383e382afe382b90000 0015001c
		662f2f3439396b39353464364f4c33346f4c394653547679363473410014000b 6578616d706c652e6f726700 00080014
		f67024656dd64a3e02b8e0712e85c9a28ca89666`
	sha256Request8489 = `00010090 2112a442 78ad3433c6ad72c029da412e 001e0020 4a3cf38fef6992bda952c6780417da0f24819415569e60b205c46e41407f1704
		00150029 6f624d61744a6f733241414143662f2f3439396b39353464364f4c33346f4c39465354767936347341000000 0014000b
		6578616d706c652e6f726700 001d0004 00020000 001c0020 b5c7bf005b6c52a21c51c5e892f81924136296cb927c43149309278cc6518e65`
)

const matrix = "\u30DE\u30C8\u30EA\u30C3\u30AF\u30B9"

// The short-term messages: FINGERPRINT and MESSAGE-INTEGRITY both ways, addresses of both families.
func TestRFC5769ShortTerm(t *testing.T) {
	c := newMACs()
	password := []byte("VOkJxbRl1RmTxUk/WvJxBt")
	for _, text := range []string{request5769, response4, response6} {
		raw := unhex(text)
		m, r := parse(raw)
		if r != OK || !m.fingerprint || m.integrity == 0 {
			t.Fatalf("parse: %v %+v", r, m)
		}
		sum := c.integrity(c.sha1, password, raw, m.integrity, sha1Size)
		if string(sum) != string(raw[m.integrity+4:m.integrity+24]) {
			t.Errorf("integrity %x", sum)
		}
		var k key
		k.size = copy(k.bytes[:], password)
		if got := c.seal(append([]byte(nil), raw[:m.integrity]...), 0, &credential{key: k, valid: true}, true); string(got) != string(raw) {
			t.Errorf("sealed %x\nwant   %x", got, raw)
		}
	}
	for text, want := range map[string]string{response4: "192.0.2.1:32853", response6: "[2001:db8:1234:5678:11:2233:4455:6677]:32853"} {
		raw := unhex(text)
		m, _ := parse(raw)
		value, ok := m.get(stun.AttrXORMappedAddress)
		got, valid := readXORAddress(value, raw)
		if !ok || !valid || got != address(want) {
			t.Errorf("address %v, want %v", got, want)
		}
		if back := appendXORAddress(nil, stun.AttrXORMappedAddress, got, raw); string(back[4:]) != string(value) {
			t.Errorf("written %x, want %x", back[4:], value)
		}
	}
}

// The long-term messages through verify, as a request's credential is.
func TestLongTermVectors(t *testing.T) {
	p := basic()
	p.Realm, p.Auth.Users = "example.org", map[string]string{matrix: "TheMatrIX"}
	w := newWorld(t, p)
	x, r := w.table.begin(Path{}, unhex(longTerm5769), nil, start)
	if r != OK {
		t.Fatal(r)
	}
	x.realm = p.Realm
	user, _ := x.m.get(stun.AttrUsername)
	if r := x.verify(user, false); r != OK || x.cred.user != matrix {
		t.Errorf("RFC 5769, 2.4: %v", r)
	}
	x, _ = w.table.begin(Path{}, unhex(longTerm5769), nil, start)
	if x.realm = p.Realm; x.verify(user, true) != Unauthorized {
		t.Error("an MD5 credential passes for SHA-256")
	}
	x, r = w.table.begin(Path{}, unhex(sha256Request8489), nil, start)
	if r != OK {
		t.Fatal(r)
	}
	x.realm = p.Realm
	if r := x.verify([]byte(matrix), true); r != OK || !x.cred.sha256 {
		t.Errorf("RFC 8489, B.1: %v", r)
	}
}

// A password of the TURN REST draft, by `echo -n 1433895918:user | openssl dgst -sha1 -hmac secret -binary | base64`.
// Password returns the password that belongs to the user name of an ephemeral credential: base64(HMAC-SHA1(secret,
// user)), where user is "expiry[:userid]" (draft-uberti-behave-turn-rest).
func Password(secret, user string) string {
	return string(newMACs().password([]byte(secret), []byte(user)))
}

func TestPassword(t *testing.T) {
	if got, want := Password("secret", "1433895918:user"), opensslPassword; got != want {
		t.Errorf("password %q, want %q", got, want)
	}
	long := strings.Repeat("secret", 20)
	if got := Password(long, "1433895918:user"); got != opensslLong {
		t.Errorf("password of a long secret %q, want %q", got, opensslLong)
	}
}

const (
	opensslPassword = "duY86vsmGEXM+Ma7pGS//SXJIv0="
	opensslLong     = "XiLoABGx9rCMlt7o9jsCnGmRG00="
)
