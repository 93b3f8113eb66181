package gateway

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/pion/dtls/v3/pkg/protocol/handshake"
	"github.com/pion/dtls/v3/pkg/protocol/recordlayer"
)

// aHello is a ClientHello record with a cookie of size bytes.
func aHello(cookie int) []byte {
	body := append([]byte{0xFE, 0xFD}, bytes.Repeat([]byte{7}, 32)...)
	body = append(body, 2, 'i', 'd', byte(cookie))
	body = append(body, bytes.Repeat([]byte{9}, cookie)...)
	body = append(body, 0, 4, 0xC0, 0x2B, 0xC0, 0x2F, 1, 0)
	body = append(body, 0, 4, 0, 23, 0, 0)
	n := byte(len(body))
	b := append([]byte{recordHandshake, 0xFE, 0xFF, 0, 0, 0, 0, 0, 0, 0, 3, 0, n + handshakeHeader}, typeClientHello, 0, 0, n, 0, 1, 0, 0, 0, 0, 0, n)
	return append(b, body...)
}

// TestHelloWithoutCookie: the library's own parser reads what the pipe replays, with the same content but the cookie.
func TestHelloWithoutCookie(t *testing.T) {
	h, ok := parseHello(aHello(cookieSize))
	if !ok || len(h.cookie) != cookieSize || h.sequence != 3 {
		t.Fatalf("%+v", h)
	}
	parse := func(b []byte) *handshake.MessageClientHello {
		var r recordlayer.RecordLayer
		if err := r.Unmarshal(b); err != nil {
			t.Fatal(err)
		}
		return r.Content.(*handshake.Handshake).Message.(*handshake.MessageClientHello)
	}
	with, without := parse(h.record), parse(h.withoutCookie())
	if len(without.Cookie) != 0 || !bytes.Equal(with.Cookie, h.cookie) {
		t.Errorf("cookies %x and %x", without.Cookie, with.Cookie)
	}
	with.Cookie = nil
	a, _ := with.Marshal()
	b, _ := without.Marshal()
	if !bytes.Equal(a, b) {
		t.Errorf("%x\n%x", a, b)
	}
	var r recordlayer.RecordLayer
	verify := h.appendHelloVerify(nil, h.cookie)
	if err := r.Unmarshal(verify); err != nil || len(verify) != helloVerifySize || r.Header.SequenceNumber != 3 {
		t.Fatalf("%x: %v", verify, err)
	}
	if m := r.Content.(*handshake.Handshake).Message.(*handshake.MessageHelloVerifyRequest); !bytes.Equal(m.Cookie, h.cookie) {
		t.Errorf("cookie %x", m.Cookie)
	}
}

// TestCookie: a cookie holds for its address and its hello, for one period and the next.
func TestCookie(t *testing.T) {
	k := &cookieMaker{key: [32]byte{1}}
	here, there := netip.MustParseAddrPort("192.0.2.1:5000"), netip.MustParseAddrPort("192.0.2.1:5001")
	now := int64(1_700_000_000) * 1e9
	show := func(b []byte, client netip.AddrPort, now int64, change int) bool {
		h, _ := parseHello(b)
		cookie := k.make(here, &h, cookiePeriodOf(int64(1_700_000_000)*1e9))
		b = bytes.Clone(b)
		at := recordHeader + handshakeHeader + helloFixed + 1 + len(h.sessionID) + 1
		copy(b[at:], cookie[:])
		if change > 0 {
			b[change]++
		}
		h, ok := parseHello(b)
		return ok && k.valid(client, &h, now)
	}
	hello := aHello(cookieSize)
	cookieAt := recordHeader + handshakeHeader + helloFixed + 3 + 1
	for name, c := range map[string]struct {
		client netip.AddrPort
		after  int64
		change int
		want   bool
	}{
		"at once":         {here, 0, 0, true},
		"a period later":  {here, int64(cookiePeriod), 0, true},
		"two later":       {here, 2 * int64(cookiePeriod), 0, false},
		"another port":    {there, 0, 0, false},
		"another random":  {here, 0, recordHeader + handshakeHeader + 10, false},
		"another cookie":  {here, 0, cookieAt, false},
		"another session": {here, 0, recordHeader + handshakeHeader + helloFixed + 1, false},
		"another suite":   {here, 0, cookieAt + cookieSize + 3, false},
	} {
		if got := show(hello, c.client, now+c.after, c.change); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func FuzzDTLSHello(f *testing.F) {
	f.Add(aHello(0))
	f.Add(aHello(cookieSize))
	f.Add(aHello(255)[:60])
	f.Add([]byte{recordHandshake, 0xFE, 0xFD, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, typeClientHello})
	k := &cookieMaker{}
	client := netip.MustParseAddrPort("[2001:db8::1]:5000")
	f.Fuzz(func(t *testing.T, b []byte) {
		h, ok := parseHello(b)
		if !ok {
			return
		}
		if verify := h.appendHelloVerify(nil, make([]byte, cookieSize)); len(verify) > len(h.record) {
			t.Fatalf("an answer of %d bytes to %d", len(verify), len(h.record))
		}
		if k.valid(client, &h, 1e18) {
			t.Fatal("a cookie was guessed")
		}
		again, ok := parseHello(h.withoutCookie())
		if !ok || len(again.cookie) != 0 || !bytes.Equal(again.fixed, h.fixed) || !bytes.Equal(again.sessionID, h.sessionID) || !bytes.Equal(again.rest, h.rest) {
			t.Fatal("the hello without its cookie is another one")
		}
	})
}
