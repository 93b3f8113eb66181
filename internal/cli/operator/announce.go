package operator

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/weir-lb/weir/internal/control"
	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/control/tree"
	"github.com/weir-lb/weir/internal/kube/l4"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// announceFile is a configuration of weir lb run with an announce section alone.
type announceFile struct {
	Announce *lb.AnnounceSpec `yaml:"announce"`
}

// readAnnouncement reads a file of --announce, and lets the load balancer's own compiler judge it, with addresses of the pools.
func readAnnouncement(path string, pools []netip.Prefix) (*l4.Announcement, error) {
	text, err := config.Once(path)
	if err != nil {
		return nil, err
	}
	file, document, err := config.Decode[announceFile](path, text)
	if err != nil {
		return nil, err
	}
	spec := file.Announce
	if spec == nil {
		return nil, document.Errorf("", "there is no announce section; write announce: with bgp or vrrp, as in a configuration of weir lb run")
	}
	if spec.Services != nil {
		return nil, document.Errorf("announce.services", "the addresses of all Gateways and Services are announced; remove it")
	}
	for i := range spec.VRRP {
		if spec.VRRP[i].Addresses != nil {
			return nil, document.Errorf(fmt.Sprintf("announce.vrrp[%d].addresses", i), "the addresses are those of Gateways and Services; remove it")
		}
	}
	if spec.BGP != nil {
		for i := range spec.BGP.Neighbours {
			if spec.BGP.Neighbours[i].PasswordFile != "" {
				return nil, document.Errorf(fmt.Sprintf("announce.bgp.neighbours[%d].password_file", i), "load balancers read no file that the operator names; remove it, write password_env, and set that variable there")
			}
		}
	}
	if err := compiles(spec, pools); err != nil {
		return nil, control.Locate(err, document)
	}
	root, err := tree.Of(tree.ShapeOf[announceFile](), path, text)
	if err != nil {
		return nil, err
	}
	sections, _ := root.(map[string]any)
	section, ok := sections["announce"].(map[string]any)
	if !ok {
		return nil, errors.New(path + ": announce is no mapping; write bgp or vrrp in it")
	}
	delete(section, "aggregates")
	a := &l4.Announcement{Section: section}
	for _, prefix := range spec.Aggregates {
		a.Aggregates = append(a.Aggregates, prefix.Prefix)
	}
	return a, nil
}

// compiles tries an announcement with a service that has the first address of each pool and of each aggregate.
func compiles(spec *lb.AnnounceSpec, pools []netip.Prefix) error {
	if len(pools) == 0 {
		pools = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	}
	service := lb.ServiceSpec{Name: "announced"}
	seen := map[netip.Addr]bool{}
	add := func(prefix netip.Prefix) {
		if address := prefix.Addr(); !seen[address] {
			seen[address] = true
			service.VIPs = append(service.VIPs, lb.VIPSpec{Address: lb.AddressPrefix{Prefix: netip.PrefixFrom(address, address.BitLen())}, Protocol: lb.Protocol(lb.TCP), Port: lb.PortRange{First: 1, Last: 1}})
		}
	}
	for _, pool := range pools {
		add(pool)
	}
	for _, aggregate := range spec.Aggregates {
		add(aggregate.Prefix)
	}
	_, err := lb.Compile(lb.Spec{Services: []lb.ServiceSpec{service}, Announce: spec}, nil, lb.AllCaps())
	return err
}
