package record_test

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/dtls/record"
)

// A record is what the RFCs say, byte by byte: made here from the key block by the standard library's GCM, with the nonce of
// RFC 5288 and the additional data of RFC 5246 section 6.2.3.3, or of RFC 9146 section 5.3 with a connection id.
func TestRecordsAreThoseOfTheRFCs(t *testing.T) {
	payload := []byte("what the record carries")
	for _, suite := range []record.Suite{record.PSKWithAES128GCMSHA256, record.PSKWithAES256GCMSHA384} {
		for _, cid := range [][]byte{nil, {1, 2, 3, 4, 5, 6}} {
			for _, side := range []record.Side{record.Client, record.Server} {
				t.Run(fmt.Sprintf("%s side %d id %x", suite, side, cid), func(t *testing.T) {
					client, server := pair(t, suite, cid)
					sender, receiver, id := client, server, cid
					if side == record.Server {
						sender, receiver, id = server, client, nil // pair negotiates the id in one direction
					}
					for sequence := range uint64(3) {
						want := gcmRecord(t, suite, side, id, sequence, payload)
						if got := seal(t, sender, record.ApplicationData, payload); !bytes.Equal(got, want) {
							t.Fatalf("record %d is\n%x, want\n%x", sequence, got, want)
						}
						if typ, got, v := open(receiver, want); v != record.Opened || typ != record.ApplicationData || !bytes.Equal(got, payload) {
							t.Fatalf("record %d: verdict %d, type %d, %q", sequence, v, typ, got)
						}
					}
				})
			}
		}
	}
}

// gcmRecord makes a record of application data with the keys that pair uses: byte i of the key block is i.
func gcmRecord(t *testing.T, suite record.Suite, side record.Side, cid []byte, sequence uint64, payload []byte) []byte {
	t.Helper()
	length := (suite.KeysLength() - 8) / 2
	block := make([]byte, suite.KeysLength())
	for i := range block {
		block[i] = byte(i)
	}
	key, iv := block[:length], block[2*length:2*length+4]
	if side == record.Server {
		key, iv = block[length:2*length], block[2*length+4:]
	}
	full := binary.BigEndian.AppendUint64(nil, 1<<48|sequence)
	aad := append(bytes.Clone(full), 23, 0xfe, 0xfd, 0, byte(len(payload)))
	header := append([]byte{23, 0xfe, 0xfd}, full...)
	inner := bytes.Clone(payload)
	if len(cid) > 0 {
		inner = append(inner, 23)
		header = append(append([]byte{25, 0xfe, 0xfd}, full...), cid...)
		aad = append(bytes.Repeat([]byte{0xff}, 8), 25, byte(len(cid)), 25, 0xfe, 0xfd)
		aad = append(append(append(aad, full...), cid...), 0, byte(len(inner)))
	}
	c, err := aes.NewCipher(key)
	if err != nil {
		t.Fatal(err)
	}
	gcm, err := cipher.NewGCM(c)
	if err != nil {
		t.Fatal(err)
	}
	out := binary.BigEndian.AppendUint16(header, uint16(8+len(inner)+16))
	return gcm.Seal(append(out, full...), append(bytes.Clone(iv), full...), inner, aad)
}

// A connection id is at most MaxCID bytes long, on either side.
func TestConnectionIDLengths(t *testing.T) {
	keys := record.SplitKeys(record.PSKWithAES128CCM8, make([]byte, record.PSKWithAES128CCM8.KeysLength()))
	longest, over := make([]byte, record.MaxCID), make([]byte, record.MaxCID+1)
	a, err := record.NewAssociation(record.PSKWithAES128CCM8, &keys, record.Client, longest, longest[:record.MaxCID-1])
	if err != nil || len(a.ReadCID()) != record.MaxCID || len(a.WriteCID()) != record.MaxCID-1 {
		t.Fatalf("%v", err)
	}
	if _, err := record.NewAssociation(record.PSKWithAES128CCM8, &keys, record.Client, nil, longest); err != nil {
		t.Errorf("the longest id to write: %v", err)
	}
	for _, ids := range [][2][]byte{{over, nil}, {nil, over}} {
		if _, err := record.NewAssociation(record.PSKWithAES128CCM8, &keys, record.Client, ids[0], ids[1]); err == nil {
			t.Errorf("ids of %d and %d bytes passed", len(ids[0]), len(ids[1]))
		}
	}
	if _, err := record.NewAssociation(0x1234, &keys, record.Client, nil, nil); err == nil {
		t.Error("an unknown suite passed")
	}
}

// What an association has sent and received, and how much one record takes.
func TestAssociationCounts(t *testing.T) {
	client, server := pair(t, record.PSKWithAES128CCM8, []byte{1, 2})
	if client.Sent() != 0 || server.Newest() != 0 || !bytes.Equal(client.WriteCID(), []byte{1, 2}) || client.Suite() != record.PSKWithAES128CCM8 {
		t.Errorf("sent %d, newest %d, id %x before the first record", client.Sent(), server.Newest(), client.WriteCID())
	}
	for range 3 {
		last := seal(t, client, record.ApplicationData, nil)
		if client.Sent() == 3 {
			if _, payload, v := open(server, last); v != record.Opened || len(payload) != 0 {
				t.Errorf("verdict %d, payload %x", v, payload)
			}
		}
	}
	if client.Sent() != 3 || server.Newest() != 3 {
		t.Errorf("sent %d, newest %d; want 3, 3", client.Sent(), server.Newest())
	}
	if client.MaxPayload() != record.MaxPlaintext || server.MaxPayload() != record.MaxPlaintext {
		t.Errorf("payloads of %d and %d bytes without a limit", client.MaxPayload(), server.MaxPayload())
	}
	for _, a := range []*record.Association{client, server} {
		a.LimitPlaintext(100)
	}
	if client.MaxPayload() != 99 || server.MaxPayload() != 100 {
		t.Errorf("payloads of %d and %d bytes; want 99, the inner type counts with an id, and 100", client.MaxPayload(), server.MaxPayload())
	}
	if _, err := client.Seal(new(record.Scratch), record.ApplicationData, make([]byte, 300), 100, 100); !errors.Is(err, record.ErrSize) {
		t.Errorf("100 bytes and their type under a limit of 100: %v", err)
	}
	if got := seal(t, client, record.ApplicationData, make([]byte, 99)); len(got) != client.HeadRoom()+99+client.TailRoom() {
		t.Errorf("a record of %d bytes", len(got))
	}
	big := seal(t, server, record.ApplicationData, make([]byte, 100))
	if _, payload, v := open(client, big); v != record.Opened || len(payload) != 100 {
		t.Errorf("verdict %d, %d bytes", v, len(payload))
	}
}

// The largest payload is opened, also with an inner type.
func TestLargestPayload(t *testing.T) {
	for _, cid := range [][]byte{nil, {7}} {
		client, server := pair(t, record.PSKWithAES128CCM, cid)
		if _, payload, v := open(server, seal(t, client, record.ApplicationData, make([]byte, record.MaxPlaintext))); v != record.Opened || len(payload) != record.MaxPlaintext {
			t.Errorf("id %x: verdict %d, %d bytes", cid, v, len(payload))
		}
	}
}

// A record with a connection id where none was negotiated, or without one, is Broken and spends nothing of the keys.
func TestConnectionIDMustBeAsNegotiated(t *testing.T) {
	withID, serverWithID := pair(t, record.PSKWithAES128CCM8, []byte{1, 2})
	without, serverWithout := pair(t, record.PSKWithAES128CCM8, nil)
	for _, c := range []struct {
		from, to *record.Association
		id       int
	}{{withID, serverWithout, 2}, {without, serverWithID, 2}} {
		var r record.Record
		if _, err := record.Next(seal(t, c.from, record.ApplicationData, []byte("x")), c.id, &r); err != nil {
			t.Fatal(err)
		}
		if _, _, _, v := c.to.Open(new(record.Scratch), &r); v != record.Broken || c.to.Forged() != 0 {
			t.Errorf("verdict %d, %d forged", v, c.to.Forged())
		}
	}
}

// newest is for opened records alone: it lets the address of the peer change.
func TestOnlyOpenedRecordsAreNewest(t *testing.T) {
	client, server := pair(t, record.PSKWithAES128CCM8, nil)
	next := func() []byte { return seal(t, client, record.ApplicationData, []byte("payload")) }
	first, second, third := next(), next(), next()
	forged := bytes.Clone(third)
	forged[len(forged)-1] ^= 1
	otherEpoch := bytes.Clone(third)
	otherEpoch[4] = 2
	otherVersion := bytes.Clone(third)
	otherVersion[2] = 0xff
	for _, c := range []struct {
		name     string
		datagram []byte
		newest   bool
		want     record.Verdict
	}{
		{"second", second, true, record.Opened},
		{"first", first, false, record.Opened},
		{"second again", second, false, record.Replayed},
		{"forged", forged, false, record.Forged},
		{"another epoch", otherEpoch, false, record.WrongEpoch},
		{"another version", otherVersion, false, record.Broken},
		{"third", third, true, record.Opened},
	} {
		var r record.Record
		if _, err := record.Next(bytes.Clone(c.datagram), -1, &r); err != nil {
			t.Fatal(c.name, err)
		}
		if _, _, newest, v := server.Open(new(record.Scratch), &r); newest != c.newest || v != c.want {
			t.Errorf("%s: newest %t, verdict %d; want %t, %d", c.name, newest, v, c.newest, c.want)
		}
	}
}

func TestNextReadsRecords(t *testing.T) {
	id := make([]byte, record.MaxCID)
	withID := func(n int) []byte {
		return append(append([]byte{25, 0xfe, 0xfd, 0, 1, 0, 0, 0, 0, 0, 9}, id[:n]...), 0, 1, 7)
	}
	plain := func(first, high, low byte, body ...byte) []byte {
		return append([]byte{first, high, low, 0, 0, 0, 0, 0, 0, 0, 5, 0, byte(len(body))}, body...)
	}
	for _, c := range []struct {
		name     string
		datagram []byte
		id       int
		rest     int // -1: malformed
	}{
		{"a record of no bytes", plain(22, 0xfe, 0xfd), 0, 0},
		{"what follows is returned", append(plain(22, 0xfe, 0xfd, 1), 9, 9), 0, 2},
		{"version 1.0 of a first hello", plain(22, 0xfe, 0xff, 1), 0, 0},
		{"another version", plain(22, 0xfe, 0xfc, 1), 0, -1},
		{"TLS", plain(22, 3, 3, 1), 0, -1},
		{"a type above", plain(28, 0xfe, 0xfd, 1), 0, -1},
		{"a type below", plain(19, 0xfe, 0xfd, 1), 0, -1},
		{"header cut", plain(22, 0xfe, 0xfd)[:12], 0, -1},
		{"body cut", plain(22, 0xfe, 0xfd, 1, 2)[:14], 0, -1},
		{"too long", append([]byte{22, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 5, 0xff, 0xff}, make([]byte, 0xffff)...), 0, -1},
		{"an id of no bytes", withID(0), 0, 0},
		{"an id of two", withID(2), 2, 0},
		{"the longest id", withID(record.MaxCID), record.MaxCID, 0},
		{"a longer one", append(withID(record.MaxCID), make([]byte, 300)...), record.MaxCID + 1, -1},
		{"an id where none is expected", withID(2), -1, -1},
		{"an id in version 1.0", bytes.Replace(withID(2), []byte{0xfd}, []byte{0xff}, 1), 2, -1},
		{"an id cut", withID(2)[:13], 2, -1},
	} {
		var r record.Record
		rest, err := record.Next(c.datagram, c.id, &r)
		if (err != nil) != (c.rest < 0) || (err == nil && len(rest) != c.rest) || (err != nil && !errors.Is(err, record.ErrMalformed)) {
			t.Errorf("%s: %d bytes are left, error %v; want %d", c.name, len(rest), err, c.rest)
		}
		if err == nil && !bytes.Equal(r.Clone(), c.datagram[:len(c.datagram)-c.rest]) {
			t.Errorf("%s: the clone is %x", c.name, r.Clone())
		}
	}
}

func TestPlainRecords(t *testing.T) {
	got := record.AppendPlain([]byte{0xaa}, record.Handshake, 0xffff<<48|0x010203040506, []byte("body"))
	if want := append([]byte{0xaa, 22, 0xfe, 0xfd, 0, 0, 1, 2, 3, 4, 5, 6, 0, 4}, "body"...); !bytes.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
}

// A suite's name says its key exchange and its hash, and there are 18 suites.
func TestSuitesHaveNames(t *testing.T) {
	type exchange struct {
		prefix string
		want   record.KeyExchange
	}
	exchanges := []exchange{
		{"TLS_PSK_", record.PSK},
		{"TLS_ECDHE_PSK_", record.ECDHEPSK},
		{"TLS_ECDHE_ECDSA_", record.ECDHEECDSA},
		{"TLS_ECDHE_RSA_", record.ECDHEECDSA},
	}
	if len(record.Suites()) != 18 {
		t.Errorf("%d suites, want 18", len(record.Suites()))
	}
	for _, s := range record.Suites() {
		i := slices.IndexFunc(exchanges, func(e exchange) bool { return strings.HasPrefix(s.String(), e.prefix) })
		if i < 0 || exchanges[i].want != s.KeyExchange() || strings.HasSuffix(s.String(), "_SHA384") != s.SHA384() {
			t.Errorf("%s: key exchange %d, SHA-384 %t", s, s.KeyExchange(), s.SHA384())
		}
		if got, ok := record.SuiteNamed(s.String()); !ok || got != s || !s.Known() {
			t.Errorf("%s is found as %s, %t", s, got, ok)
		}
	}
	if s, ok := record.SuiteNamed("TLS_NULL_WITH_NULL_NULL"); ok || s != 0 {
		t.Errorf("%s, %t", s, ok)
	}
	if s := record.Suite(0x1234); s.Known() || s.String() != "unknown" {
		t.Errorf("%s is known", s)
	}
}

// CCM refuses by panic what RFC 3610 cannot protect: a nonce of another length, too much data for its counter.
func TestCCMBounds(t *testing.T) {
	for _, tag := range []int{2, 3, 5, 17, 18} {
		if _, err := record.NewCCM(make([]byte, 16), tag); err == nil {
			t.Errorf("a tag of %d bytes passed", tag)
		}
	}
	if _, err := record.NewCCM(make([]byte, 15), 8); err == nil {
		t.Error("a key of 15 bytes passed")
	}
	c, err := record.NewCCM(make([]byte, 16), 16)
	if err != nil {
		t.Fatal(err)
	}
	sealing := func(nonce, aad, n int) (panicked bool) {
		defer func() { panicked = recover() != nil }()
		c.Seal(new(record.Scratch), make([]byte, nonce), make([]byte, aad), make([]byte, n+16), n)
		return false
	}
	for _, x := range []struct {
		nonce, aad, n int
		panics        bool
	}{
		{6, 0, 1, true},
		{7, 0, 1, false},
		{13, 0, 1, false},
		{14, 0, 1, true},
		{13, 0, 65535, false},
		{13, 0, 65536, true},
		{12, 0, 65536, false},
		{12, 65535 - 256, 1, false},
		{12, 65535 - 255, 1, true},
	} {
		if got := sealing(x.nonce, x.aad, x.n); got != x.panics {
			t.Errorf("nonce of %d, additional data of %d, data of %d bytes: panic %t", x.nonce, x.aad, x.n, got)
		}
	}
}

// The counter of CCM has more than one byte, and with a nonce of 12 bytes more than two: no block of key is used twice.
func TestCCMCounts(t *testing.T) {
	for _, x := range []struct{ nonce, n int }{{13, 65535}, {12, 3 << 20}} {
		c, err := record.NewCCM(make([]byte, 16), 8)
		if err != nil {
			t.Fatal(err)
		}
		s, nonce := new(record.Scratch), make([]byte, x.nonce)
		buf := make([]byte, x.n+8)
		sealed := c.Seal(s, nonce, nil, buf, x.n)
		seen := map[string]bool{} // of zeros the ciphertext is the key
		for i := 0; i+16 <= x.n; i += 16 {
			if seen[string(sealed[i:i+16])] {
				t.Fatalf("nonce of %d bytes: block %d was there before", x.nonce, i/16)
			}
			seen[string(sealed[i:i+16])] = true
		}
		if plain, ok := c.Open(s, nonce, nil, sealed); !ok || !bytes.Equal(plain, make([]byte, x.n)) {
			t.Errorf("nonce of %d bytes: the data does not open", x.nonce)
		}
	}
}
