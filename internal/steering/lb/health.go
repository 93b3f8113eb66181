package lb

import (
	"cmp"
	"net/netip"
	"time"
)

// Probe is a kind of active health check.
type Probe uint8

const (
	noProbe   Probe = iota
	ProbeTCP        // a connection opens
	ProbeUDP        // anything comes back, and no ICMP error
	ProbeHTTP       // GET answers with the expected status
	ProbeCoAP       // an empty CON is answered by RST (RFC 7252 section 4.3)
	ProbeSTUN       // a Binding request is answered (RFC 8489)
)

// Health is the active probe of a service's backends, compiled.
type Health struct {
	Probe    Probe
	Port     uint16
	Interval time.Duration
	Timeout  time.Duration
	Rise     int
	Fall     int
	Path     string
	Host     string
	Status   int    // 0: 200 to 399
	Send     []byte // payload of ProbeUDP
	Tunnel   bool   // see HealthSpec
	FailOpen bool   // likewise
}

// ProbeTarget is where a backend of a probed service is probed: the probe's port, else the backend's, else the one
// port of all VIPs. With HealthSpec.Tunnel the address is a VIP that the backend may have packets for, and the backend's port does not count. Invalid when
// there is none, which Compile refuses.
func (s *Service) ProbeTarget(b *Backend) netip.AddrPort {
	address := b.Address4
	if !address.IsValid() {
		address = b.Address6
	}
	port := s.Health.Port
	if s.Health.Tunnel {
		address = s.probedVIP(b)
	} else if port == 0 {
		port = b.Port
	}
	if port == 0 && len(s.VIPs) > 0 {
		port = s.VIPs[0].First
		for _, vip := range s.VIPs {
			if vip.First != port || vip.Last != port {
				port = 0
				break
			}
		}
	}
	if port == 0 || !address.IsValid() {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(address, port)
}

// probedVIP is the first VIP of the family of a tunnel to the backend, else the first one: a tunnel carries both families.
func (s *Service) probedVIP(b *Backend) netip.Addr {
	for _, vip := range s.VIPs {
		if _, ok := b.Address(vip.Prefix.Addr().Is6()); ok {
			return vip.Prefix.Addr()
		}
	}
	if len(s.VIPs) > 0 {
		return s.VIPs[0].Prefix.Addr()
	}
	return netip.Addr{}
}

// ProbeTunnel is the other end of the tunnel through which a backend is probed; invalid: it is probed at its own address.
func (s *Service) ProbeTunnel(b *Backend) netip.Addr {
	if !s.Health.Tunnel {
		return netip.Addr{}
	}
	to, ok := b.Address(s.probedVIP(b).Is6())
	if !ok {
		to = cmp.Or(b.Address4, b.Address6)
	}
	return to
}
