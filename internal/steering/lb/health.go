package lb

import (
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
	FailOpen bool   // see HealthSpec
}

// ProbeTarget is where a backend of a probed service is probed: the probe's port, else the backend's, else the one
// port of all VIPs. Invalid when there is none, which Compile refuses.
func (s *Service) ProbeTarget(b *Backend) netip.AddrPort {
	address := b.Address4
	if !address.IsValid() {
		address = b.Address6
	}
	port := s.Health.Port
	if port == 0 {
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
