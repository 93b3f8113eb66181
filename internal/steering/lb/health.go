package lb

import "time"

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
}
