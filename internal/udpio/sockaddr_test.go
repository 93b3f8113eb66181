package udpio

import (
	"net/netip"
	"testing"
)

// A zone is a number where the kernel gave the address, and a name where a person did.
func TestZones(t *testing.T) {
	for _, zone := range []string{"1", "lo"} { // the loopback interface is the first of every network namespace
		var sa sockaddr
		if n := putSockaddr(&sa, netip.MustParseAddrPort("[fe80::1%"+zone+"]:5684"), true); n != sizeofInet6 || sa.Scope_id != 1 {
			t.Errorf("zone %s: length %d, scope id %d, want 1", zone, n, sa.Scope_id)
		}
		if got, want := getSockaddr(&sa), netip.MustParseAddrPort("[fe80::1%1]:5684"); got != want {
			t.Errorf("zone %s: read back as %v, want %v", zone, got, want)
		}
	}
	var sa sockaddr
	if n := putSockaddr(&sa, netip.MustParseAddrPort("[fe80::1%nosuch0]:5684"), true); n != 0 {
		t.Errorf("an interface that does not exist can be reached: length %d", n)
	}
}
