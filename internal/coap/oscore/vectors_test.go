package oscore

import (
	"bytes"
	"encoding/hex"
	"testing"

	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/dtls/record"
)

func unhex(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// vector is a security context of RFC 8613 Appendix C, as the client has it.
type vector struct {
	salt, sender, recipient, idContext string
	senderKey, recipientKey, commonIV  string
	senderNonce, recipientNonce        string
}

const vectorSecret = "0102030405060708090a0b0c0d0e0f10"

var (
	withSalt = vector{
		"9e7ca92223786340", "", "01", "",
		"f0910ed7295e6ad4b54fc793154302ff", "ffb14e093c94c9cac9471648b4f98710", "4622d4dd6d944168eefb54987c",
		"4622d4dd6d944168eefb54987c", "4722d4dd6d944169eefb54987c",
	}
	withoutSalt = vector{
		"", "00", "01", "",
		"321b26943253c7ffb6003b0b64d74041", "e57b5635815177cd679ab4bcec9d7dda", "be35ae297d2dace910c52e99f9",
		"bf35ae297d2dace910c52e99f9", "bf35ae297d2dace810c52e99f9",
	}
	withContext = vector{
		"9e7ca92223786340", "", "01", "37cbf3210017a2d3",
		"af2a1300a5e95788b356336eeecd2b92", "e39a0c7c77b43f03b4b39ab9a268699f", "2ca58fb85ff1b81c0b7181b85e",
		"2ca58fb85ff1b81c0b7181b85e", "2da58fb85ff1b81d0b7181b85e",
	}
)

func (v *vector) parameters(t testing.TB, server bool) Parameters {
	p := Parameters{MasterSecret: unhex(t, vectorSecret), MasterSalt: unhex(t, v.salt), SenderID: unhex(t, v.sender), RecipientID: unhex(t, v.recipient)}
	if v.idContext != "" {
		p.IDContext = unhex(t, v.idContext)
	}
	if server {
		p.SenderID, p.RecipientID = p.RecipientID, p.SenderID
	}
	return p
}

// contexts are the client's and the server's, with the sequence numbers to begin with.
func (v *vector) contexts(t testing.TB, clientAt uint64) (client, server *Context) {
	t.Helper()
	var err error
	if client, err = New(v.parameters(t, false), nil, 1); err != nil {
		t.Fatal(err)
	}
	if server, err = New(v.parameters(t, true), nil, 1); err != nil {
		t.Fatal(err)
	}
	client.next = clientAt
	return client, server
}

// RFC 8613 Appendix C.1 to C.3: keys and nonces of both endpoints.
func TestVectorsOfDerivation(t *testing.T) {
	for name, v := range map[string]*vector{"C.1": &withSalt, "C.2": &withoutSalt, "C.3": &withContext} {
		t.Run(name, func(t *testing.T) {
			for _, server := range []bool{false, true} {
				c, err := New(v.parameters(t, server), nil, 1)
				if err != nil {
					t.Fatal(err)
				}
				senderKey, recipientKey, senderNonce, recipientNonce := v.senderKey, v.recipientKey, v.senderNonce, v.recipientNonce
				if server {
					senderKey, recipientKey, senderNonce, recipientNonce = recipientKey, senderKey, recipientNonce, senderNonce
				}
				if got := hex.EncodeToString(c.iv[:]); got != v.commonIV {
					t.Errorf("common IV %s, want %s", got, v.commonIV)
				}
				for _, n := range []struct {
					id   []byte
					want string
				}{{c.parameters.SenderID, senderNonce}, {c.parameters.RecipientID, recipientNonce}} {
					if got := c.nonce(n.id, []byte{0}); hex.EncodeToString(got[:]) != n.want {
						t.Errorf("nonce %x, want %s", got, n.want)
					}
				}
				for _, k := range []struct {
					id   []byte
					want string
				}{{c.parameters.SenderID, senderKey}, {c.parameters.RecipientID, recipientKey}} {
					if got, err := c.derive(k.id, "Key", keyLength); err != nil || hex.EncodeToString(got) != k.want {
						t.Errorf("key %x, %v, want %s", got, err, k.want)
					}
				}
			}
		})
	}
}

// RFC 8613 Appendix C.4 to C.6: requests, byte by byte, and the server opens them.
func TestVectorsOfRequests(t *testing.T) {
	for _, test := range []struct {
		name             string
		v                *vector
		plain, protected string
	}{
		{"C.4", &withSalt, "44015d1f00003974396c6f63616c686f737483747631", "44025d1f00003974396c6f63616c686f7374620914ff612f1092f1776f1c1668b3825e"},
		{"C.5", &withoutSalt, "440171c30000b932396c6f63616c686f737483747631", "440271c30000b932396c6f63616c686f737463091400ff4ed339a5a379b0b8bc731fffb0"},
		{"C.6", &withContext, "44012f8eef9bbf7a396c6f63616c686f737483747631", "44022f8eef9bbf7a396c6f63616c686f73746b19140837cbf3210017a2d3ff72cd7273fd331ac45cffbe55c3"},
	} {
		t.Run(test.name, func(t *testing.T) {
			client, server := test.v.contexts(t, 20)
			var b Binding
			codec := NewCodec(1024)
			got, err := codec.SealRequest(make([]byte, 0, 1024), client, unhex(t, test.plain), &b)
			if err != nil || hex.EncodeToString(got) != test.protected {
				t.Fatalf("protected\n%x, %v, want\n%s", got, err, test.protected)
			}
			opened, verdict := open(t, codec, server, got, &b)
			if verdict != Opened || hex.EncodeToString(opened) != test.plain {
				t.Errorf("opened %d\n%x, want\n%s", verdict, opened, test.plain)
			}
		})
	}
}

// RFC 8613 Appendix C.7 and C.8: responses to the request of C.4, without and with a Partial IV, and the client opens them.
func TestVectorsOfResponses(t *testing.T) {
	const plain = "64455d1f00003974ff48656c6c6f20576f726c6421"
	for _, test := range []struct {
		name, protected string
		own             bool
	}{
		{"C.7", "64445d1f0000397490ffdbaad1e9a7e7b2a813d3c31524378303cdafae119106", false},
		{"C.8", "64445d1f00003974920100ff4d4c13669384b67354b2b6175ff4b8658c666a6cf88e", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			client, server := withSalt.contexts(t, 20)
			codec := NewCodec(1024)
			var ofClient, ofServer Binding
			request, err := codec.SealRequest(make([]byte, 0, 1024), client, unhex(t, "44015d1f00003974396c6f63616c686f737483747631"), &ofClient)
			if err != nil {
				t.Fatal(err)
			}
			if _, verdict := open(t, codec, server, request, &ofServer); verdict != Opened {
				t.Fatal(verdict)
			}
			got, err := codec.SealResponse(make([]byte, 0, 1024), unhex(t, plain), &ofServer, test.own)
			if err != nil || hex.EncodeToString(got) != test.protected {
				t.Fatalf("protected\n%x, %v, want\n%s", got, err, test.protected)
			}
			var m message.Message
			if err := message.Parse(got, &m); err != nil {
				t.Fatal(err)
			}
			opened, err := codec.OpenResponse(make([]byte, 0, 1024), &m, &ofClient)
			if err != nil || hex.EncodeToString(opened) != plain {
				t.Errorf("opened\n%x, %v, want\n%s", opened, err, plain)
			}
		})
	}
}

// open opens a request at a server that has one context.
func open(t testing.TB, codec *Codec, server *Context, request []byte, b *Binding) ([]byte, Verdict) {
	t.Helper()
	table, err := NewTable(server)
	if err != nil {
		t.Fatal(err)
	}
	var m message.Message
	if err := message.Parse(bytes.Clone(request), &m); err != nil {
		t.Fatal(err)
	}
	return codec.OpenRequest(make([]byte, 0, 2048), &m, table, b)
}

// Window.Begin refuses what came before.
func TestWindowBegin(t *testing.T) {
	var w record.Window
	w.Begin(100)
	for sequence, want := range map[uint64]bool{0: false, 40: false, 99: false, 100: false, 101: true} {
		if got := w.Check(sequence); got != want {
			t.Errorf("%d: %v", sequence, got)
		}
	}
}
