package engine_test

import (
	"bytes"
	"fmt"
	"net"
	"sync"
	"testing"

	"github.com/pion/dtls/v3"

	"github.com/weir-lb/weir/internal/dtls/engine"
	"github.com/weir-lb/weir/internal/dtls/handshake/handshaketest"
	"github.com/weir-lb/weir/internal/dtls/record"
)

func TestPionClients(t *testing.T) {
	suites := []dtls.CipherSuiteID{dtls.TLS_PSK_WITH_AES_128_CCM_8, dtls.TLS_PSK_WITH_AES_128_CCM, dtls.TLS_PSK_WITH_AES_128_GCM_SHA256}
	page := handshaketest.SuitesOfPage(t, "pion", "client", func(s record.Suite) bool { return s.KeyExchange() == record.PSK })
	for _, suite := range suites {
		for _, serverCID := range []int{0, 4, 6} {
			for _, clientCID := range []int{-1, 0, 4, 6} {
				t.Run(fmt.Sprintf("%s/server-%d/client-%d", suite, serverCID, clientCID), func(t *testing.T) {
					cfg := engine.Config{Workers: 1}
					if serverCID > 0 {
						cfg.CIDs = engine.ByteOwnerCIDs(serverCID, 7)
					}
					e, h := serve(t, cfg)
					opts := []dtls.ClientOption{dtls.WithCipherSuites(suite), dtls.WithExtendedMasterSecret(dtls.RequireExtendedMasterSecret)}
					switch {
					case clientCID == 0:
						opts = append(opts, dtls.WithConnectionIDGenerator(dtls.OnlySendCIDGenerator()))
					case clientCID > 0:
						opts = append(opts, dtls.WithConnectionIDGenerator(dtls.RandomCIDGenerator(clientCID)))
					}
					c := dial(t, e, newRoaming(t), opts...)
					for _, n := range []int{1, 16, 100, 1200, 8000} {
						roundTrip(t, c, bytes.Repeat([]byte{byte(n)}, n))
					}
					roundTrip(t, c, []byte("info"))
					i := h.last(t)
					wantRead, wantWrite := serverCID, max(clientCID, 0)
					if clientCID < 0 || serverCID == 0 {
						wantRead, wantWrite = 0, 0
					}
					if !i.Secure || i.Identity != "cali.pion" || i.Suite != suite.String() || !i.ExtendedMasterSecret ||
						len(i.ReadCID) != wantRead || len(i.WriteCID) != wantWrite || i.HasCID != (wantRead > 0) {
						t.Fatalf("info %+v", i)
					}
					page.Made(i.Suite)
					if wantRead > 0 && i.ReadCID[0] != 7 {
						t.Fatalf("connection id %x does not name its owner", i.ReadCID)
					}
					stats(t, e, "one handshake, nothing odd", func(s engine.Stats) bool {
						return s.Handshakes == 1 && s.Sessions == 1 && s.HalfOpen == 0 && s.BadMACs+s.Replays+s.Malformed+s.HandshakesFailed == 0
					})
				})
			}
		}
	}
}

func TestAddressChange(t *testing.T) {
	e, h := serve(t, engine.Config{Workers: 2, CIDs: engine.ByteOwnerCIDs(6, 1)})
	conn := newRoaming(t)
	c := dial(t, e, conn, dtls.WithConnectionIDGenerator(dtls.OnlySendCIDGenerator()))
	roundTrip(t, c, []byte("before"))
	for i := range 20 {
		conn.rebind(t)
		roundTrip(t, c, fmt.Appendf(nil, "after change %d", i))
		roundTrip(t, c, []byte("info"))
		if got, want := h.last(t).Addr.Port(), conn.LocalAddr().(*net.UDPAddr).Port; int(got) != want {
			t.Fatalf("the session is at port %d, the client at %d", got, want)
		}
	}
	stats(t, e, "one handshake", func(s engine.Stats) bool { return s.Handshakes == 1 && s.AddressChanges == 20 })
}

func TestNewHandshakeFromTheSameAddress(t *testing.T) {
	for _, cids := range []*engine.CIDs{nil, engine.ByteOwnerCIDs(6, 1)} {
		e, h := serve(t, engine.Config{Workers: 1, CIDs: cids})
		conn := newRoaming(t)
		var opts []dtls.ClientOption
		if cids != nil {
			opts = append(opts, dtls.WithConnectionIDGenerator(dtls.OnlySendCIDGenerator()))
		}
		first := dial(t, e, conn, opts...)
		roundTrip(t, first, []byte("first"))
		// The client reboots: no close_notify arrives.
		conn.mu.Lock()
		conn.drop = func([]byte) bool { return true }
		address := conn.conn.LocalAddr().String()
		conn.mu.Unlock()
		first.Close()
		second := dial(t, e, roamingAt(t, address), opts...)
		roundTrip(t, second, []byte("second"))
		if cids == nil {
			stats(t, e, "the first session is replaced", func(s engine.Stats) bool { return s.Replaced == 1 && s.Sessions == 1 })
			h.mu.Lock()
			if h.closed != 1 {
				t.Errorf("the handler was called for %d ends", h.closed)
			}
			h.mu.Unlock()
		}
	}
}

func TestCloseNotifyEndsTheSession(t *testing.T) {
	e, h := serve(t, engine.Config{Workers: 1, CIDs: engine.ByteOwnerCIDs(6, 1)})
	c := dial(t, e, newRoaming(t))
	roundTrip(t, c, []byte("x"))
	c.Close()
	stats(t, e, "no session", func(s engine.Stats) bool { return s.Sessions == 0 && s.Alerts == 1 })
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed != 1 {
		t.Errorf("the handler was called for %d ends", h.closed)
	}
}

func TestWrongKey(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	e, _ := serve(t, engine.Config{Workers: 1})
	var group sync.WaitGroup
	var texts [2]string
	for i, opt := range []dtls.ClientOption{
		dtls.WithPSK(func([]byte) ([]byte, error) { return []byte("wrong"), nil }),
		dtls.WithPSKIdentityHint([]byte("nobody")),
	} {
		conn := newRoaming(t)
		group.Go(func() { // both wait some seconds for the answer
			if _, err := tryDial(e, conn, opt); err != nil {
				texts[i] = err.Error()
			}
		})
	}
	group.Wait()
	if texts[0] == "" {
		t.Fatal("a handshake with a wrong key succeeds")
	}
	if texts[0] != texts[1] {
		t.Errorf("the answer distinguishes an unknown identity (%s) from a wrong key (%s)", texts[1], texts[0])
	}
	stats(t, e, "no session", func(s engine.Stats) bool { return s.Sessions == 0 && s.HandshakesFailed == 2 && s.HalfOpen == 0 })
}

func TestPlain(t *testing.T) {
	e, h := serve(t, engine.Config{Workers: 1, Plain: true})
	c, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(e.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, n := range []int{1, 1000, 16000} {
		roundTrip(t, c, bytes.Repeat([]byte{1}, n))
	}
	roundTrip(t, c, []byte("info"))
	if i := h.last(t); i.Secure || int(i.Addr.Port()) != c.LocalAddr().(*net.UDPAddr).Port {
		t.Fatalf("info %+v", i)
	}
	stats(t, e, "one peer", func(s engine.Stats) bool { return s.Sessions == 1 && s.Requests == 4 })
}
