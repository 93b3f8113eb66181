package client

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
)

// What is shown is the source document's layout, line by line.
func TestRequestShown(t *testing.T) {
	for _, secure := range []bool{false, true} {
		p := newPeer(t, secure)
		x, err := Do(t.Context(), RequestConfig{URI: p.uri, Timeout: 20 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := x.Print(&b); err != nil {
			t.Fatal(err)
		}
		session := ""
		if secure {
			session = `
>>> DTLS\(127\.0\.0\.1:\d+,ID:\d+\)
>>> TLS_PSK_WITH_AES_128_CCM_8
>>> PreSharedKey Identity \[identity: cali\.[0-9A-F]{16}\]
>>> read-cid : 
>>> write-cid: [0-9A-F]{12}
`
		}
		want := regexp.MustCompile(`^==\[ CoAP Request \]=============================================
MID    : \d+
Token  : [0-9A-F]{16}
Type   : CON
Method : 0\.01 - GET
Options: \{"Uri-Path":"context"\}
Payload: 0 Bytes
===============================================================
` + session + `
Time elapsed \(ms\): \d+
==\[ CoAP Response \]============================================
MID    : \d+
Token  : [0-9A-F]{16}
Type   : ACK
Status : 2\.05 - CONTENT
Options: \{"Content-Format":"text/plain"\}
RTT    : \d+ ms
Payload: 24 Bytes
---------------------------------------------------------------
ip: 127\.0\.0\.1
node-id: 1
===============================================================
$`)
		if !want.MatchString(b.String()) {
			t.Errorf("secure %v: printed\n%s", secure, b.String())
		}
	}
}

func TestRequestSeparateResponse(t *testing.T) {
	p := newPeer(t, false)
	p.separate.Store(true)
	x, err := Do(t.Context(), RequestConfig{URI: p.uri, Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	var m message.Message
	if err := message.Parse(x.Response, &m); err != nil || m.Type != message.Con || m.Code != message.Content {
		t.Fatalf("response %+v, %v", m, err)
	}
}

func TestRequestRetransmitsAndGivesUp(t *testing.T) {
	p := newPeer(t, false)
	p.silent.Store(true)
	x, err := Do(t.Context(), RequestConfig{URI: p.uri, AckTimeout: time.Millisecond, Timeout: 20 * time.Second})
	if !errors.Is(err, ErrNoResponse) || x.Retransmissions != 4 {
		t.Fatalf("%d retransmissions, %v", x.Retransmissions, err)
	}
}

func TestRequestCancelled(t *testing.T) {
	p := newPeer(t, false)
	p.silent.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 200 { // the end of the context meets the exchange in a Write, in a Read, or between
		if _, err := Do(ctx, RequestConfig{URI: p.uri}); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
}

func TestRequestWrongSecret(t *testing.T) {
	p := newPeer(t, true)
	_, err := Do(t.Context(), RequestConfig{URI: p.uri, Security: Security{Secret: []byte("wrong")}, Timeout: 500 * time.Millisecond})
	if err == nil || !strings.Contains(err.Error(), "connect to") {
		t.Fatal(err)
	}
}

func TestParseTarget(t *testing.T) {
	got, err := ParseTarget("coaps://[2001:db8::1]:15684/a/b%2Fc?x=1&y=%26")
	if err != nil || !got.Secure || got.Host != "2001:db8::1" || got.Port != 15684 ||
		strings.Join(got.Path, "|") != "a|b/c" || strings.Join(got.Query, "|") != "x=1|y=&" {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, uri := range []string{"coap://[ff02::fd%eth0]:5783/a%20b", "coap://[ff02::fd%25eth0]:5783/a%20b"} {
		if got, err := ParseTarget(uri); err != nil || got.Host != "ff02::fd%eth0" || !got.IsGroup() || got.Port != 5783 || len(got.Path) != 1 || got.Path[0] != "a b" {
			t.Errorf("%s: %+v, %v", uri, got, err)
		}
	}
	if got, err := ParseTarget("coap://host"); err != nil || got.Port != 5683 || got.Path != nil {
		t.Fatalf("%+v, %v", got, err)
	}
	for give, want := range map[string]string{
		"http://host":                          "write coap://host/path",
		"coap:///path":                         "no host",
		"coap://host:0":                        "must be 1 to 65535",
		"coap://host:x":                        "invalid port",
		"coap://host#frag":                     "no fragment",
		"coap://u@host":                        "no user",
		"coap://h/" + strings.Repeat("x", 256): "at most 255",
		"coap://h/" + strings.Repeat("x/", 40): "at most 32",
		"host/path":                            "write coap://",
	} {
		if _, err := ParseTarget(give); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: %v, want %q", give, err, want)
		}
	}
}

func TestOptionsShown(t *testing.T) {
	var b message.Builder
	b.Reset(make([]byte, 0, 256), message.Con, message.GET, 1, nil)
	b.Text(message.URIHost, "h")
	b.Option(message.ETag, []byte{1, 2})
	b.Text(message.URIPath, "a")
	b.Text(message.URIPath, "b\"")
	b.Uint(message.MaxAge, 60)
	b.Uint(message.Accept, 50)
	b.Uint(message.Block2, 3<<4|8|2)
	b.Option(message.OptionID(65000), []byte{0xff})
	datagram, err := b.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	var m message.Message
	if err := message.Parse(datagram, &m); err != nil {
		t.Fatal(err)
	}
	want := `{"Uri-Host":"h", "ETag":0x0102, "Uri-Path":["a","b\""], "Max-Age":60, "Accept":"application/json", "Block2":"(szx=2/64, m=true, num=3)", "Option-65000":0xff}`
	if got := Options(&m); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

func FuzzParseTarget(f *testing.F) {
	for _, seed := range []string{"coap://h/a/b?c=d&e", "coaps://[::1]:5684/%2f/", "coap://h:0", "coap://%zz", "coap://h/?", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		target, err := ParseTarget(uri)
		if err != nil {
			return
		}
		r := Request{}
		datagram, err := r.build(r.options(target), nil)
		var m message.Message
		if err != nil || message.Parse(datagram, &m) != nil {
			t.Fatalf("%q gives %+v and no request: %v", uri, target, err)
		}
	})
}

// What a server sends must not steer the terminal: no escape, C1 control, lone carriage return or bidirectional override.
func TestPayloadText(t *testing.T) {
	for payload, text := range map[string]bool{
		"plain\r\nlines\twith tabs, ä, 漢 and \u00a0": true,
		"\x1b[31mred": false, "\u009b31mred": false, "hidden\rshown": false, "\u202eright to left": false, "\xff": false, "\x7f": false,
	} {
		got := PayloadText(&message.Message{Payload: []byte(payload)})
		if isText := got == strings.ReplaceAll(payload, "\r\n", "\n"); isText != text {
			t.Errorf("%q is shown as %q", payload, got)
		}
	}
}
