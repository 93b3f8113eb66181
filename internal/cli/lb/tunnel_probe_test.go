package lb

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// Probes with tunnel: true reach the VIP through the tunnel, so a backend that does not open it is down although its own address answers. What
// they need of the machine goes with the balancer, and what a killed one left goes with the next one's first probe.
func TestRootProbesThroughTheTunnel(t *testing.T) {
	clitest.TakesSeconds(t)
	lab := kernelLab(t, "ktunnel")
	gateway := lab.Namespace("gateway")
	address := func(host *netlab.Host, address, device string) {
		_, err := host.Exec(t.Context(), "ip", "address", "add", address, "dev", device, "nodad")
		clitest.Must(t, err)
	}
	for i, name := range []string{"a", "b"} {
		host := lab.Namespace(fmt.Sprint("zone", i+1))
		address(gateway, fmt.Sprintf("fd0%d::1/64", i+2), fmt.Sprint("veth", i+2))
		address(host, fmt.Sprintf("fd0%d::2/64", i+2), "eth0")
		address(host, "fd00::9:9/128", "lo")
		answerAs(t, host, "[fd00::9:9]:80", name)
	}
	health := "health: {type: tcp, tunnel: true, interval: 1s, timeout: 900ms, rise: 1, fall: 2, fail_open: false}"
	backends := "\n  backends: [{name: a, address: 10.2.0.2}, {name: b, address: 10.3.0.2}]\n"
	k := newKernelLB(t, gateway, "tcx", kernelInterfaces, `hash_key: 00112233445566778899aabbccddeeff
maglev_size: 1009
limits: {flows: 4096}
services:
- name: direct
  vips: [{address: 10.9.9.8, protocol: tcp, port: 8080}]
  mode: l3dsr
  health: {type: tcp, interval: 1s, timeout: 900ms, rise: 1, fall: 2}`+backends+`- name: ipip
  vips: [{address: 10.9.9.9, protocol: tcp, port: 80}]
  mode: l3dsr
  `+health+backends+`- name: gue
  vips: [{address: 10.9.9.9, protocol: udp, port: 80}]
  mode: l3dsr
  tunnel: gue
  `+strings.Replace(health, "tcp", "udp", 1)+backends+`- name: six
  vips: [{address: "fd00::9:9", protocol: tcp, port: 80}]
  mode: l3dsr
  `+health+strings.NewReplacer("10.2.0.2", "'fd02::2'", "10.3.0.2", "'fd03::2'").Replace(backends))
	up := func(what string, want ...string) {
		t.Helper()
		k.until(what, func(s *v1.LBStatus) bool {
			for _, service := range s.Services[1:] {
				var got []string
				for _, b := range service.Backends {
					if b.State == "up" {
						got = append(got, b.Name)
					}
				}
				if !slices.Equal(got, want) {
					return false
				}
			}
			return s.Services[0].Backends[0].State == "up" && s.Services[0].Backends[1].State == "up"
		})
	}
	end := func(zone string) *clitest.Process {
		return clitest.StartIn(t, lab.Namespace(zone), "the tunnel's end in "+zone, "lb", "decap", "--interface", "eth0", "--from", "10.2.0.1,10.3.0.1,fd02::1,fd03::1", "--hook", "tcx")
	}
	up("none opens the tunnel")
	first := end("zone1")
	up("a opens the tunnel", "a")
	end("zone2")
	up("both open the tunnel", "a", "b")
	first.Stop()
	up("only b opens the tunnel", "b")

	// A server of this machine must not answer in place of b.
	address(gateway, "10.9.9.9/32", "lo")
	k.until("the VIP is an address of the balancer", func(s *v1.LBStatus) bool { return s.Services[1].Backends[1].State == "down" })
	if !strings.Contains(k.out.String(), "it is an address of this machine") {
		t.Error("the log does not say why b is down")
	}
	_, err := gateway.Exec(t.Context(), "ip", "address", "del", "10.9.9.9/32", "dev", "lo")
	clitest.Must(t, err)
	up("b again", "b")

	left := func() (rules int, devices bool) {
		t.Helper()
		text, err := k.host.Exec(t.Context(), "ip", "rule")
		clitest.Must(t, err)
		links, err := k.host.Exec(t.Context(), "ip", "-o", "link")
		clitest.Must(t, err)
		return strings.Count(text, "fwmark"), strings.Contains(links, "weir-probe")
	}
	k.end(syscall.SIGKILL)
	netlabtest.Eventually(t, "the device goes with its process", func() bool { _, device := left(); return !device })
	if rules, _ := left(); rules != 1 {
		t.Errorf("%d rules after kill -9", rules)
	}
	k.start()
	up("after the restart", "b")
	if rules, device := left(); rules != 1 || !device {
		t.Errorf("%d rules, device %t: the rule of the killed process is removed, one is made", rules, device)
	}
	k.end(syscall.SIGTERM)
	if rules, device := left(); rules != 0 || device {
		t.Errorf("left behind: %d rules, device %t", rules, device)
	}
}
