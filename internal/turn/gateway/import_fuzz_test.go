package gateway_test

import (
	"encoding/json"
	"net/netip"
	"testing"

	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
	"github.com/weir-lb/weir/internal/turn/allocation"
	"github.com/weir-lb/weir/internal/turn/gateway"
)

// Whatever the body of an import says, the gateway has no allocation but of its users, within its quotas and lifetimes, and an
// answer that adds up.
func FuzzImport(f *testing.F) {
	port := netlabtest.UDPPort(f)
	server := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port)
	record := allocation.Record{
		Version: allocation.RecordVersion, ID: 1, Listener: "udp", User: "user1", Transaction: "000000000000000000000000",
		Path: allocation.Path{Client: netip.MustParseAddrPort("127.0.0.1:9"), Server: server}, Granted: 600, Expires: 1 << 62,
		Relay:       []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:50000")},
		Permissions: []allocation.PermissionRecord{{Peer: netip.MustParseAddr("10.0.0.1"), Expires: 1 << 62}},
		Channels:    []allocation.ChannelRecord{{Number: 0x4000, Peer: netip.MustParseAddrPort("10.0.0.1:5"), Expires: 1 << 62}},
		Reservation: &allocation.ReservationRecord{Token: "0000000000000001", Relay: netip.MustParseAddrPort("127.0.0.1:50001"), Expires: 1 << 62},
	}
	stranger := record
	stranger.User, stranger.ID = "nobody", 2
	for _, records := range [][]allocation.Record{{record}, {record, record}, {stranger, record}, nil} {
		text, err := json.Marshal(map[string]any{"allocations": records})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(`{"allocations":[null]}`))
	f.Add([]byte(`{"allocations":{}}`))
	f.Add([]byte(`{"users":[]}`))
	config := gateway.Config{
		Auth:      gateway.AuthConfig{Users: []gateway.UserConfig{{Name: "user1", Password: "passwd1"}}},
		Listeners: []gateway.ListenerConfig{{Name: "udp", Address: server.Addr(), Port: port, Routes: []string{"all"}}},
		Clusters:  []gateway.ClusterConfig{{Name: "all", Endpoints: []string{"10.0.0.0/8"}}},
		Quotas:    gateway.QuotaConfig{Allocations: 2, Permissions: 3, Channels: 3},
	}
	const now = 1_800_000_000e9
	f.Fuzz(func(t *testing.T, text []byte) {
		g, err := gateway.Open(config, gateway.Options{Workers: 1, Now: func() int64 { return now }})
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		records, err := gateway.ParseExport(text)
		if err != nil {
			return
		}
		restored, err := g.Import(t.Context(), records)
		there := 0
		for u := range g.Users {
			there++
			if u.User != "user1" || u.Expires > now+3600e9 || u.Permissions > 3 || u.Channels > 3 {
				t.Fatalf("%+v", u)
			}
		}
		if there != restored || there > 2 || (restored < len(records)) != (err != nil) {
			t.Fatalf("%d allocations, answered %d of %d, %v", there, restored, len(records), err)
		}
	})
}
