package attach

import (
	"testing"

	"github.com/vishvananda/netlink"
)

// Tunnels without Ethernet headers are refused by name.
func TestCarriesFrames(t *testing.T) {
	for kind, want := range map[string]bool{"ether": true, "loopback": true, "none": false, "ipip": false} {
		l := &netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Name: "wg0", EncapType: kind}, LinkType: "wireguard"}
		if err := carriesFrames(l); (err == nil) != want {
			t.Errorf("%s: %v", kind, err)
		}
	}
}
