package lb

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

const birdOptions = `router id 10.9.0.12;
protocol device {}
protocol direct { ipv4; ipv6; }
protocol static { ipv4; route 203.0.113.0/25 blackhole; route 203.0.113.128/25 blackhole; }
protocol bgp four {
  local 10.9.0.12 as 64513; neighbor 10.9.0.11 as 64512; passive on; multihop 3; ttl security on;
  ipv4 { import all; export where source = RTS_STATIC; };
  ipv6 { import all; export none; };
}
protocol bgp six {
  local 2001:db8:9::12 as 64512; neighbor 2001:db8:9::11 as 64512; passive on;
  ipv4 { import all; export none; };
  ipv6 { import all; export none; };
}
`

const weirOptions = `announce:
  aggregates: [10.9.0.0/28, "2001:db8:9::/60"]
  bgp:
    as: 64512
    router_id: 10.9.0.11
    next_hop4: 10.9.0.99
    next_hop6: 2001:db8:9::99
    local_preference: 250
    neighbours:
    - {address: 10.9.0.12, as: 64513, multihop: 255, prefix_limit: %d}
    - {address: "2001:db8:9::12", as: 64512}
services:
- name: s
  vips: [{address: 10.9.0.11, protocol: udp, port: 5000}, {address: "2001:db8:9::11", protocol: udp, port: 5000}]
  backends: [{name: a, address: 10.9.0.1, address2: "2001:db8:9::1", port: 5001}]
`

// BIRD receives what the options say: aggregates in place of addresses, next hops of both families over both sessions, the local preference
// inside the AS alone. Multihop is seen by a neighbour that wants a TTL of 253 and more. Too many prefixes close the session.
func TestRootAnnounceOptions(t *testing.T) {
	netlabtest.Tools(t, "bird", "birdc")
	clitest.TakesSeconds(t)
	l := newVRRPLab(t, "bgpoptions")
	control := filepath.Join(l.dir, "bird.ctl")
	daemon(t, l.b, "bird", "-f", "-c", l.file("bird.conf", birdOptions), "-s", control, "-P", filepath.Join(l.dir, "bird.pid"))
	weir := l.weir(l.a, fmt.Sprintf(weirOptions, 2), "--datapath", "udp")
	for protocol, want := range map[string][]string{
		"four": {"BGP.as_path: 64512", "BGP.next_hop: 10.9.0.99", "BGP.next_hop: 2001:db8:9::99"},
		"six":  {"BGP.as_path: \n", "BGP.next_hop: 10.9.0.99", "BGP.next_hop: 2001:db8:9::99", "BGP.local_pref: 250"},
	} {
		last := ""
		netlabtest.Eventually(t, "routes of "+protocol, func() bool {
			out, err := l.b.Exec(t.Context(), "birdc", "-s", control, "show", "route", "all", "protocol", protocol)
			last = out
			return err == nil && strings.Contains(out, "10.9.0.0/28") && strings.Contains(out, "2001:db8:9::/60")
		}, func() string { return last })
		for _, text := range want {
			if !strings.Contains(last, text) {
				t.Errorf("%s lacks %q:\n%s", protocol, text, last)
			}
		}
		if strings.Contains(last, "10.9.0.11/32") || strings.Contains(last, "::11/128") || protocol == "four" && strings.Contains(last, "local_pref: 250") {
			t.Errorf("%s has too much:\n%s", protocol, last)
		}
	}
	clitest.Must(t, os.WriteFile(filepath.Join(l.dir, "weir.yaml"), fmt.Appendf(nil, weirOptions, 1), 0o600))
	weir.Cmd.Process.Signal(syscall.SIGHUP)
	var last *v1.LBStatus
	netlabtest.Eventually(t, "too many prefixes", func() bool {
		status, err := weir.Admin.LBStatus(t.Context())
		last = status
		return err == nil && len(status.Announce.BGP.Neighbours) == 2 && strings.Contains(status.Announce.BGP.Neighbours[0].Problem, "more than 1 prefixes") &&
			status.Announce.BGP.Neighbours[1].State == "established"
	}, func() string { return fmt.Sprintf("%+v", last.Announce.BGP) })
}
