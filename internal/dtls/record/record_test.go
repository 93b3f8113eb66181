package record_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/weir-lb/weir/internal/dtls/record"
)

func pair(t testing.TB, suite record.Suite, cid []byte) (client, server *record.Association) {
	t.Helper()
	block := make([]byte, suite.KeysLength())
	for i := range block {
		block[i] = byte(i)
	}
	keys := record.SplitKeys(suite, block)
	client, err := record.NewAssociation(suite, &keys, record.Client, nil, cid)
	if err != nil {
		t.Fatal(err)
	}
	server, err = record.NewAssociation(suite, &keys, record.Server, cid, nil)
	if err != nil {
		t.Fatal(err)
	}
	return client, server
}

func seal(t testing.TB, a *record.Association, typ record.ContentType, payload []byte) []byte {
	t.Helper()
	buf := make([]byte, record.MaxHeadRoom+len(payload)+record.MaxTailRoom)
	copy(buf[record.MaxHeadRoom:], payload)
	out, err := a.Seal(new(record.Scratch), typ, buf, record.MaxHeadRoom, len(payload))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func open(a *record.Association, datagram []byte) (record.ContentType, []byte, record.Verdict) {
	var r record.Record
	if _, err := record.Next(datagram, len(a.ReadCID()), &r); err != nil {
		return 0, nil, record.Broken
	}
	typ, payload, _, v := a.Open(new(record.Scratch), &r)
	return typ, payload, v
}

// Every bit of a record counts: header, connection id, nonce, ciphertext, tag.
func TestEveryBitIsProtected(t *testing.T) {
	for _, suite := range record.Suites() {
		for _, cid := range [][]byte{nil, {1, 2, 3, 4, 5, 6}} {
			client, server := pair(t, suite, cid)
			good := seal(t, client, record.ApplicationData, []byte("payload of a record"))
			for bit := range 8 * len(good) {
				b := bytes.Clone(good)
				b[bit/8] ^= 1 << (bit % 8)
				if _, _, v := open(server, b); v == record.Opened {
					t.Fatalf("%s, connection id %x: bit %d goes unnoticed", suite, cid, bit)
				}
			}
			if typ, payload, v := open(server, bytes.Clone(good)); v != record.Opened || typ != record.ApplicationData || string(payload) != "payload of a record" {
				t.Fatalf("%s: verdict %d", suite, v)
			}
			if _, _, v := open(server, good); v != record.Replayed {
				t.Errorf("%s: a replay has verdict %d", suite, v)
			}
		}
	}
}

// A peer may pad what it encrypts (RFC 9146 section 4); nothing but padding is no record.
func TestPadding(t *testing.T) {
	client, server := pair(t, record.PSKWithAES128CCM8, []byte{1, 2})
	// The type byte that Seal appends becomes padding with type 0.
	b := seal(t, client, 0, []byte{'h', 'i', byte(record.ApplicationData), 0, 0, 0})
	if typ, payload, v := open(server, b); v != record.Opened || typ != record.ApplicationData || string(payload) != "hi" {
		t.Errorf("verdict %d, type %d, %q", v, typ, payload)
	}
	if _, _, v := open(server, seal(t, client, 0, make([]byte, 5))); v != record.Broken {
		t.Errorf("nothing but padding: verdict %d", v)
	}
}

func TestForgeriesSpendTheKeys(t *testing.T) {
	client, server := pair(t, record.PSKWithAES128CCM8, []byte{1, 2})
	good := seal(t, client, record.ApplicationData, []byte("x"))
	var r record.Record
	s := new(record.Scratch)
	work := make([]byte, len(good))
	server.SetForged(1<<20 - 3)
	for _, want := range []record.Verdict{record.Forged, record.Forged, record.Spent} {
		copy(work, good)
		work[len(work)-1] ^= 1
		if _, err := record.Next(work, 2, &r); err != nil {
			t.Fatal(err)
		}
		if _, _, _, v := server.Open(s, &r); v != want {
			t.Fatalf("verdict %d after %d", v, server.Forged())
		}
	}
	if _, _, v := open(server, good); v != record.Spent {
		t.Errorf("after 2^20 forgeries: verdict %d", v)
	}
	if _, err := server.Seal(s, record.ApplicationData, make([]byte, 200), 100, 1); err != record.ErrSpent {
		t.Errorf("sealing with spent keys: %v", err)
	}
	b, err := server.Seal(s, record.Alert, make([]byte, 200), 100, 2)
	if err != nil {
		t.Fatal(err)
	}
	if typ, payload, v := open(client, b); v != record.Opened || typ != record.Alert || len(payload) != 2 {
		t.Errorf("the alert that ends it: verdict %d", v)
	}
}

// What cannot hold a tag is no attempt to forge one: a thousand of them fit in a datagram, and must not spend the keys.
func TestStubsSpendNothing(t *testing.T) {
	client, server := pair(t, record.PSKWithAES128CCM8, []byte{1, 2})
	stub := seal(t, client, record.ApplicationData, nil)
	header := record.HeaderLength + 2
	for n := range 8 + 8 {
		b := bytes.Clone(stub[:header+n])
		binary.BigEndian.PutUint16(b[header-2:], uint16(n))
		if _, _, v := open(server, b); v != record.Broken {
			t.Errorf("%d bytes of body: verdict %d", n, v)
		}
	}
	if server.Forged() != 0 {
		t.Errorf("%d forgeries counted", server.Forged())
	}
}

// RFC 6347 section 4.1: a sequence number is never used twice.
func TestSequenceNumbersEnd(t *testing.T) {
	client, server := pair(t, record.PSKWithAES128CCM8, nil)
	client.SetNext(1<<48 - 1)
	if _, payload, v := open(server, seal(t, client, record.ApplicationData, []byte("last"))); v != record.Opened || string(payload) != "last" {
		t.Errorf("the last one: verdict %d", v)
	}
	if _, err := client.Seal(new(record.Scratch), record.ApplicationData, make([]byte, 200), 100, 1); err != record.ErrSpent {
		t.Errorf("one more: %v", err)
	}
}

func TestSealWantsRoom(t *testing.T) {
	client, _ := pair(t, record.PSKWithAES128CCM8, []byte{1, 2})
	s := new(record.Scratch)
	h, tail := client.HeadRoom(), client.TailRoom()
	for _, c := range []struct {
		size, start, n int
		want           error
	}{
		{h + 10 + tail, h, 10, nil},
		{h + 10 + tail, h - 1, 10, record.ErrSize},
		{h + 10 + tail - 1, h, 10, record.ErrSize},
		{1 << 16, h, record.MaxPlaintext + 1, record.ErrSize},
		{1 << 16, h, record.MaxPlaintext, nil},
	} {
		if _, err := client.Seal(s, record.ApplicationData, make([]byte, c.size), c.start, c.n); err != c.want {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// The window against a model that remembers everything.
func TestWindow(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 3))
		var w record.Window
		seen := map[uint64]bool{}
		top := int64(-1)
		for range 2000 {
			step := rng.IntN(100) - 85
			if rng.IntN(50) == 0 {
				step = rng.IntN(300)
			}
			sequence := uint64(max(0, top+int64(step)))
			want := !seen[sequence] && (int64(sequence) > top || top-int64(sequence) < 64)
			if got := w.Check(sequence); got != want {
				t.Fatalf("seed %d: sequence %d, newest %d: %t", seed, sequence, top, got)
			}
			if want {
				if newest := w.Mark(sequence); newest != (int64(sequence) > top) {
					t.Fatalf("seed %d: sequence %d, newest %d: newest %t", seed, sequence, top, newest)
				}
				seen[sequence] = true
				top = max(top, int64(sequence))
			}
		}
	}
}

func TestNoAllocationPerRecord(t *testing.T) {
	for _, suite := range []record.Suite{record.PSKWithAES128CCM8, record.PSKWithAES128GCMSHA256} {
		client, server := pair(t, suite, []byte{1, 2, 3, 4, 5, 6})
		s := new(record.Scratch)
		buf := make([]byte, 400)
		var r record.Record
		if n := testing.AllocsPerRun(100, func() {
			b, err := client.Seal(s, record.ApplicationData, buf, record.MaxHeadRoom, 200)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := record.Next(b, 6, &r); err != nil {
				t.Fatal(err)
			}
			if _, _, _, v := server.Open(s, &r); v != record.Opened {
				t.Fatal(v)
			}
		}); n > 0 {
			t.Errorf("%s: %v allocations", suite, n)
		}
	}
}

func FuzzNext(f *testing.F) {
	client, _ := pair(f, record.PSKWithAES128CCM8, []byte{1, 2})
	f.Add(seal(f, client, record.ApplicationData, []byte("x")), 2)
	f.Add(record.AppendPlain(record.AppendPlain(nil, record.Alert, 1, []byte{2, 0}), record.Handshake, 2, make([]byte, 20)), -1)
	f.Add([]byte{25, 0xfe, 0xfd}, 6)
	f.Fuzz(func(t *testing.T, b []byte, cid int) {
		var r record.Record
		walked := 0
		for rest := b; len(rest) > 0; {
			next, err := record.Next(rest, cid, &r)
			if err != nil {
				return
			}
			used := len(rest) - len(next)
			if used < record.HeaderLength || r.Sequence >= 1<<48 || !bytes.Equal(r.Clone(), rest[:used]) ||
				binary.BigEndian.Uint16(rest[used-len(r.Body)-2:]) != uint16(len(r.Body)) {
				t.Fatalf("record of %d bytes: %+v", used, r)
			}
			walked += used
			rest = next
		}
		if walked != len(b) {
			t.Fatalf("walked %d of %d bytes", walked, len(b))
		}
	})
}

// FuzzOpen: only what the peer has sealed opens.
func FuzzOpen(f *testing.F) {
	for _, suite := range []record.Suite{record.PSKWithAES128CCM8, record.PSKWithAES128GCMSHA256} {
		client, _ := pair(f, suite, []byte{1, 2})
		f.Add(seal(f, client, record.ApplicationData, []byte("x")), suite == record.PSKWithAES128GCMSHA256)
	}
	f.Add([]byte{23, 0xfe, 0xfd, 0, 1, 0, 0, 0, 0, 0, 9, 0, 1, 2}, false)
	f.Fuzz(func(t *testing.T, b []byte, gcm bool) {
		suite := record.PSKWithAES128CCM8
		if gcm {
			suite = record.PSKWithAES128GCMSHA256
		}
		client, server := pair(t, suite, []byte{1, 2})
		genuine := seal(t, client, record.ApplicationData, []byte("x"))
		if _, payload, v := open(server, bytes.Clone(b)); v == record.Opened && !bytes.HasPrefix(b, genuine) {
			t.Fatalf("a forgery opens: %q", payload)
		}
	})
}
