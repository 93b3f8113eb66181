package handshake

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"math/rand/v2"
	"testing"

	"github.com/pion/dtls/v3/pkg/protocol/handshake"
)

// A published test vector of the TLS 1.2 PRF with SHA-256 (the IETF TLS list's
// archive, "test vectors for TLS 1.2 PRF").
func TestPRFVector(t *testing.T) {
	secret, _ := hex.DecodeString("9bbe436ba940f017b17652849a71db35")
	seed, _ := hex.DecodeString("a0ba9f936cda311827a6f796ffd5198c")
	want := "e3f229ba727be17b8d122620557cd453c2aab21d07c3d495329b52d4e61edb5a6b301791e90d35c9c9a46b4e14baf9af0fa022f7077def17abfd3797c0564bab4fbc91666e9def9b97fce34f796789baa48082d122ee42c5a72e5a5110fff70187347b66"
	got := make([]byte, 100)
	prf(sha256.New, got, secret, "test label", seed)
	if hex.EncodeToString(got) != want {
		t.Errorf("%x", got)
	}
}

func clientHello(cookie, cid []byte) []byte {
	c, err := NewClient(ClientConfig{Identity: []byte("x"), Key: []byte("y"), OfferCID: true, CID: cid})
	if err != nil {
		panic(err)
	}
	c.offer.cookie = cookie
	return message(typeClientHello, 0, c.offer.appendClientHello(nil))
}

// Fragments in any order, overlapping and repeated, make the message.
func TestReassembly(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var in reassembly
		var want [3][]byte
		var parts []fragment
		for m := range want {
			want[m] = make([]byte, rng.IntN(300))
			for i := range want[m] {
				want[m][i] = byte(rng.Uint32())
			}
			n := len(want[m])
			cut := func(from, to int) {
				parts = append(parts, fragment{typ: byte(m), length: n, sequence: uint16(m), offset: from, data: want[m][from:to]})
			}
			for at := 0; at < n || n == 0; {
				end := min(n, at+1+rng.IntN(100))
				cut(max(0, at-rng.IntN(20)), end) // overlapping
				if at = end; n == 0 {
					break
				}
			}
		}
		parts = append(parts, parts...)
		rng.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
		var got [][]byte
		for i := range parts {
			in.add(&parts[i], 0)
			for {
				_, _, body, ok := in.peek()
				if !ok {
					break
				}
				got = append(got, body)
				in.pop()
			}
		}
		if len(got) != 3 {
			t.Fatalf("seed %d: %d messages", seed, len(got))
		}
		for m := range want {
			if !bytes.Equal(got[m], want[m]) {
				t.Fatalf("seed %d: message %d differs", seed, m)
			}
		}
	}
}

func TestReassemblyRefuses(t *testing.T) {
	var in reassembly
	ok := fragment{typ: 1, length: 10, sequence: 1, data: []byte{1}}
	if !in.add(&ok, 0) {
		t.Fatal("a good one")
	}
	for name, f := range map[string]fragment{
		"too far ahead":    {typ: 1, length: 10, sequence: ahead, offset: 1, data: []byte{1}},
		"another length":   {typ: 1, length: 11, sequence: 1, offset: 1, data: []byte{1}},
		"another type":     {typ: 2, length: 10, sequence: 1, offset: 1, data: []byte{1}},
		"long past, wraps": {typ: 1, length: 10, sequence: 0xffff, data: []byte{1}},
	} {
		if in.add(&f, 0) {
			t.Errorf("taken: %s", name)
		}
	}
	if !in.add(&ok, 1) {
		t.Error("a fragment that keys protect is refused")
	}
	if in.add(&ok, 0) {
		t.Error("taken: a clear fragment of a message that keys protect")
	}
}

// FuzzHello: what we read of a hello is what pion reads, where both can.
func FuzzHello(f *testing.F) {
	f.Add(clientHello(nil, nil)[messageHeader:])
	f.Add(clientHello(make([]byte, 20), []byte{1, 2, 3})[messageHeader:])
	h := hello{version: version12, random: make([]byte, 32), suite: 0xc0a8, extendedMaster: true, renegotiation: true, hasCID: true, cid: []byte{1, 2}}
	f.Add(h.appendServerHello(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var h hello
		parseServerHello(b, &h)
		if !parseClientHello(b, &h) {
			return
		}
		var theirs handshake.MessageClientHello
		if theirs.Unmarshal(b) != nil {
			return // it is stricter about extensions that we pass over
		}
		random := theirs.Random.MarshalFixed()
		if !bytes.Equal(h.random, random[:]) || !bytes.Equal(h.cookie, theirs.Cookie) || !bytes.Equal(h.sessionID, theirs.SessionID) ||
			len(h.suites) != 2*len(theirs.CipherSuiteIDs) {
			t.Fatalf("we read %+v, pion %+v", h, theirs)
		}
	})
}

func FuzzFragments(f *testing.F) {
	f.Add(clientHello(nil, nil))
	f.Add([]byte{16, 0, 0, 4, 0, 2, 0, 0, 1, 0, 0, 2, 1, 2, 16, 0, 0, 4, 0, 2, 0, 0, 0, 0, 0, 1, 9})
	f.Fuzz(func(t *testing.T, b []byte) {
		var in reassembly
		for rest := b; len(rest) > 0; {
			fr, next, ok := nextFragment(rest)
			if !ok {
				return
			}
			if len(next) >= len(rest) {
				t.Fatal("no progress")
			}
			in.add(&fr, 0)
			rest = next
			if _, _, body, ok := in.peek(); ok {
				if len(body) > MaxMessage {
					t.Fatalf("a message of %d bytes", len(body))
				}
				in.pop()
			}
		}
	})
}
