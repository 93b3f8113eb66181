package lb

import "net/netip"

// DecapSpec says which tunnels end at this balancer: IP-in-IP of both families and GUE (UDP port 6080), as balancers with mode l3dsr
// send. The packet inside is steered as if it had come without a tunnel, in one step. Packets inside that match no service pass to the
// kernel of this machine, without the tunnel.
type DecapSpec struct {
	// Addresses: where these tunnels end: outer destinations, addresses or prefixes. Tunnels to others pass as they are.
	Addresses []AddressPrefix `yaml:"addresses" bounds:"1 to 256"`
	// From: outer sources, addresses or prefixes. Who may send through a tunnel can use the address of any client, so
	// tunnels of others to these addresses are dropped.
	From []AddressPrefix `yaml:"from" bounds:"1 to 256"`
}

// Decap is a DecapSpec, compiled: prefixes are masked and ordered.
type Decap struct {
	Addresses, From []netip.Prefix
}
