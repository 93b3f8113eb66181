package operator

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/cli/clitest"
)

// A file of --announce is judged at the start: what load balancers would refuse has an error with file, line, key and remedy.
func TestAnnounceFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "announce.yaml")
	for text, want := range map[string]string{
		"announce: {vrrp: [{interface: eth0, vrid: 51, interval: 100ms}]}":                                                                             "",
		"announce: {bgp: {as: 64512, neighbours: [{address: 10.0.0.254, as: 64513, password_env: BGP}]}, aggregates: [192.0.2.0/24, 198.51.100.0/24]}": "",
		"announce: {bgp: {as: 64512, neighbours: [{address: 10.0.0.254, as: 64513, password_file: key}]}}":                                             ":1:90: announce.bgp.neighbours[0].password_file: ",
		"announce: {bgp: {as: 64512, next_hop4: 10.0.0.1, neighbours: [{address: \"2001:db8::1\", as: 64513}]}}":                                       "announce.bgp.router_id: ",
		"announce:\n  vrrp:\n  - {interface: eth0, vrid: 0}":                                                                                           ":3:",
		"announce: {vrrp: [{interface: eth0, vrid: 51, addresses: [192.0.2.1]}]}":                                                                      "announce.vrrp[0].addresses: ",
		"announce: {services: [a], vrrp: [{interface: eth0, vrid: 51}]}":                                                                               "announce.services: ",
		"announce: {}": "announce: ",
		"services: []": "services",
		"{}":           "there is no announce section",
		"announce: {vrrp: [{interfac: eth0, vrid: 1}]}": "interface",
	} {
		clitest.Must(t, os.WriteFile(path, []byte(text+"\n"), 0o600))
		a, err := readAnnouncement(path, []netip.Prefix{netip.MustParsePrefix("192.0.2.0/29")})
		switch {
		case want == "" && (err != nil || a == nil):
			t.Errorf("%s: %v", text, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path+":")):
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if _, err := readAnnouncement(path+".missing", nil); err == nil || !strings.Contains(err.Error(), path+".missing") {
		t.Errorf("no file: %v", err)
	}
	clitest.Must(t, os.WriteFile(path, []byte("announce: {bgp: {as: 64512, neighbours: [{address: 10.0.0.254, as: 64513}]}}\n"), 0o600))
	if _, err := readAnnouncement(path, []netip.Prefix{netip.MustParsePrefix("2001:db8::/64")}); err == nil || !strings.Contains(err.Error(), "next_hop6") {
		t.Errorf("addresses of the pool have no next hop: %v", err)
	}
}
