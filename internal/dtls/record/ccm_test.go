package record_test

import (
	"bytes"
	"crypto/aes"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/pion/dtls/v3/pkg/crypto/ccm"

	"github.com/weir-lb/weir/internal/dtls/record"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Published vectors: RFC 3610 section 8 (packets 1 to 3, 7 and 8) and NIST SP 800-38C appendix C.
func TestCCMVectors(t *testing.T) {
	const rfcKey = "c0c1c2c3c4c5c6c7c8c9cacbcccdcecf"
	const nistKey = "404142434445464748494a4b4c4d4e4f"
	for _, v := range []struct{ name, key, nonce, aad, plain, sealed string }{
		{
			"RFC 3610 #1", rfcKey, "00000003020100a0a1a2a3a4a5", "0001020304050607", "08090a0b0c0d0e0f101112131415161718191a1b1c1d1e",
			"588c979a61c663d2f066d0c2c0f989806d5f6b61dac38417e8d12cfdf926e0",
		},
		{
			"RFC 3610 #2", rfcKey, "00000004030201a0a1a2a3a4a5", "0001020304050607", "08090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
			"72c91a36e135f8cf291ca894085c87e3cc15c439c9e43a3ba091d56e10400916",
		},
		{
			"RFC 3610 #3", rfcKey, "00000005040302a0a1a2a3a4a5", "0001020304050607", "08090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20",
			"51b1e5f44a197d1da46b0f8e2d282ae871e838bb64da8596574adaa76fbd9fb0c5",
		},
		{
			"RFC 3610 #7", rfcKey, "00000009080706a0a1a2a3a4a5", "0001020304050607", "08090a0b0c0d0e0f101112131415161718191a1b1c1d1e",
			"0135d1b2c95f41d5d1d4fec185d166b8094e999dfed96c048c56602c97acbb7490",
		},
		{"NIST 1", nistKey, "10111213141516", "0001020304050607", "20212223", "7162015b4dac255d"},
		{
			"NIST 2", nistKey, "1011121314151617", "000102030405060708090a0b0c0d0e0f", "202122232425262728292a2b2c2d2e2f",
			"d2a1f0e051ea5f62081a7792073d593d1fc64fbfaccd",
		},
		{
			"NIST 3", nistKey, "101112131415161718191a1b", "000102030405060708090a0b0c0d0e0f10111213", "202122232425262728292a2b2c2d2e2f3031323334353637",
			"e3b201a9f5b71a7a9b1ceaeccd97e70b6176aad9a4428aa5484392fbc1b09951",
		},
	} {
		plain, sealed := unhex(t, v.plain), unhex(t, v.sealed)
		c, err := record.NewCCM(unhex(t, v.key), len(sealed)-len(plain))
		if err != nil {
			t.Fatal(err)
		}
		s := new(record.Scratch)
		buf := append(bytes.Clone(plain), make([]byte, 16)...)
		got := c.Seal(s, unhex(t, v.nonce), unhex(t, v.aad), buf, len(plain))
		if !bytes.Equal(got, sealed) {
			t.Errorf("%s: sealed %x, want %x", v.name, got, sealed)
		}
		if back, ok := c.Open(s, unhex(t, v.nonce), unhex(t, v.aad), bytes.Clone(sealed)); !ok || !bytes.Equal(back, plain) {
			t.Errorf("%s: opened %t %x", v.name, ok, back)
		}
		sealed[0] ^= 1
		if _, ok := c.Open(s, unhex(t, v.nonce), unhex(t, v.aad), sealed); ok {
			t.Errorf("%s: a changed byte goes unnoticed", v.name)
		}
	}
}

// Every length up to some blocks, against another implementation.
func TestCCMAgreesWithPion(t *testing.T) {
	for _, tag := range []int{8, 16} {
		key, nonce, aad := make([]byte, 16), make([]byte, 12), make([]byte, 40)
		for _, b := range [][]byte{key, nonce, aad} {
			rand.Read(b)
		}
		ours, err := record.NewCCM(key, tag)
		if err != nil {
			t.Fatal(err)
		}
		block, _ := aes.NewCipher(key)
		theirs, err := ccm.NewCCM(block, tag, len(nonce))
		if err != nil {
			t.Fatal(err)
		}
		s := new(record.Scratch)
		for n := range 1500 {
			plain := make([]byte, n)
			rand.Read(plain)
			extra := aad[:n%41]
			want := theirs.Seal(nil, nonce, plain, extra)
			got := ours.Seal(s, nonce, extra, append(bytes.Clone(plain), make([]byte, tag)...), n)
			if !bytes.Equal(got, want) {
				t.Fatalf("%d bytes, tag %d: %x, want %x", n, tag, got, want)
			}
			if back, ok := ours.Open(s, nonce, extra, want); !ok || !bytes.Equal(back, plain) {
				t.Fatalf("%d bytes, tag %d: opened %t", n, tag, ok)
			}
		}
	}
}

func BenchmarkSealOpen(b *testing.B) {
	for _, suite := range []record.Suite{record.PSKWithAES128CCM8, record.PSKWithAES128GCMSHA256} {
		for _, n := range []int{32, 64, 128, 512, 1024} {
			keys := record.SplitKeys(suite, make([]byte, suite.KeysLength()))
			cid := []byte{1, 2, 3, 4, 5, 6}
			s := new(record.Scratch)
			b.Run(fmt.Sprintf("seal/%s/%d", suite, n), func(b *testing.B) {
				a, err := record.NewAssociation(suite, &keys, record.Client, cid, cid)
				if err != nil {
					b.Fatal(err)
				}
				buf := make([]byte, record.MaxHeadRoom+n+record.MaxTailRoom)
				b.ReportAllocs()
				for b.Loop() {
					if _, err := a.Seal(s, record.ApplicationData, buf, record.MaxHeadRoom, n); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run(fmt.Sprintf("open/%s/%d", suite, n), func(b *testing.B) {
				sender, _ := record.NewAssociation(suite, &keys, record.Client, cid, cid)
				a, _ := record.NewAssociation(suite, &keys, record.Server, cid, cid)
				empty := *a
				buf := make([]byte, record.MaxHeadRoom+n+record.MaxTailRoom)
				sealed, _ := sender.Seal(s, record.ApplicationData, buf, record.MaxHeadRoom, n)
				work := make([]byte, len(sealed))
				var r record.Record
				b.ReportAllocs()
				for b.Loop() {
					copy(work, sealed)
					*a = empty // the window is as before
					if _, err := record.Next(work, 6, &r); err != nil {
						b.Fatal(err)
					}
					if _, _, _, v := a.Open(s, &r); v != record.Opened {
						b.Fatal(v)
					}
				}
			})
		}
	}
}
