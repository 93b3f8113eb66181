package handshake_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/weir-lb/weir/internal/dtls/handshake"
)

// flights are the datagrams of a handshake of each kind, for seeds.
func flights(f *testing.F) (names []string, configs map[string]func() (handshake.ClientConfig, handshake.ServerConfig)) {
	f.Helper()
	configs = kinds(f)
	for name := range configs {
		names = append(names, name)
	}
	slices.Sort(names)
	for i, name := range names {
		client, server := configs[name]()
		c, err := handshake.NewClient(client)
		if err != nil {
			f.Fatal(err)
		}
		run(f, c, serverWith(f, []byte{1, 2, 3, 4, 5, 6}, server), func(_ bool, d []byte) [][]byte {
			f.Add(byte(i), byte(0), d)
			return [][]byte{d}
		})
	}
	return names, configs
}

// FuzzFlights puts a datagram of a stranger before one of a handshake, on both sides. Whatever it is, no side may panic, hold memory
// at the end, or have a session that the other one does not share.
func FuzzFlights(f *testing.F) {
	names, configs := flights(f)
	f.Fuzz(func(t *testing.T, kind, at byte, d []byte) {
		if len(d) > 2000 {
			return
		}
		client, server := configs[names[int(kind)%len(names)]]()
		client.Repetitions = 3
		c, err := handshake.NewClient(client)
		if err != nil {
			t.Fatal(err)
		}
		s := serverWith(t, []byte{1, 2, 3, 4, 5, 6}, server)
		n := byte(0)
		run(t, c, s, func(_ bool, b []byte) [][]byte {
			if n++; n-1 == at%12 {
				return [][]byte{bytes.Clone(d), b}
			}
			return [][]byte{b}
		})
		if s.pending != nil {
			s.pending.Release()
		}
		if s.hs.Held() != 0 {
			t.Fatalf("%d bytes are held", s.hs.Held())
		}
		if done, err := c.Done(); done && err == nil {
			if s.result == nil {
				t.Fatal("the client has a session, the server none")
			}
			exchange(t, c.Result().Association, s.result.Association)
		}
	})
}

// FuzzCertificates: our reader of certificate messages and chains neither panics nor trusts what no authority signed.
func FuzzCertificates(f *testing.F) {
	a := newAuthority(f, "test")
	device := a.Issue(f, "P-256", "device", nil)
	f.Add(handshake.CertificateBody(device.Certificate, 0), byte(0))
	f.Add(handshake.CertificateBody(device.Certificate, 2), byte(2))
	f.Add([]byte{0, 0, 0}, byte(0))
	f.Add([]byte{0, 0, 4, 0, 0, 1, 0}, byte(0))
	good := handshake.CertificateBody(device.Certificate, 0)
	credentials := &handshake.Credentials{Roots: a.Roots, RawKey: func([]byte) bool { return false }}
	f.Fuzz(func(t *testing.T, body []byte, typ byte) {
		if handshake.TrustsBody(credentials, body, typ&2) && !bytes.HasPrefix(body[6:], good[6:]) && !bytes.Contains(body, device.Chain[0]) {
			t.Fatalf("trusted: %x", body)
		}
	})
}
