package l4

import (
	"net/netip"
	"testing"

	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// The configuration has the section once there is an address, with the aggregates in which there is one: the load balancer refuses others.
func TestAnnouncement(t *testing.T) {
	o := Options{Announce: &Announcement{
		Section:    map[string]any{"vrrp": []any{map[string]any{"interface": "eth0", "vrid": 51, "interval": "100ms"}}},
		Aggregates: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/29"), netip.MustParsePrefix("198.51.100.0/24")},
	}}
	for _, vips := range [][]vipDocument{nil, {{Address: "192.0.2.1", Protocol: "tcp", Port: 80}, {Address: "2001:db8::1", Protocol: "udp", Port: 53}}} {
		d := document{}
		if vips != nil {
			d.Services = []serviceDocument{{Name: "s", VIPs: vips}}
		}
		d.Announce = o.Announce.section(d.Services)
		spec, _, err := config.Decode[lb.Spec]("l4", d.text())
		if err != nil {
			t.Fatal(err)
		}
		snapshot, err := lb.Compile(spec, nil, lb.AllCaps())
		if err != nil {
			t.Fatal(err)
		}
		switch a := snapshot.Announce; {
		case vips == nil && a != nil:
			t.Errorf("without an address: %+v", a)
		case vips != nil && (a == nil || len(a.VRRP) != 1 || len(a.VRRP[0].Addresses) != 3 || len(a.Aggregates) != 1):
			t.Errorf("with addresses: %+v", a)
		}
	}
	if (*Announcement)(nil).section([]serviceDocument{{VIPs: []vipDocument{{Address: "192.0.2.1"}}}}) != nil {
		t.Error("announced without being asked to")
	}
	if _, ok := o.Announce.Section["aggregates"]; ok {
		t.Error("the section of the options was changed")
	}
}
