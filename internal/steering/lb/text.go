package lb

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/weir-lb/weir/internal/addresstext"
	"github.com/weir-lb/weir/internal/steering/cid"
	"github.com/weir-lb/weir/internal/steering/flow"
)

// parseName finds text among names, which are indexed by value.
func parseName[T ~uint8](what, text string, names []string) (T, error) {
	for i, name := range names {
		if name != "" && name == text {
			return T(i), nil
		}
	}
	var known []string
	for _, name := range names {
		if name != "" {
			known = append(known, name)
		}
	}
	last := len(known) - 1
	return 0, fmt.Errorf("%q is not a known %s; write %s or %s", text, what, strings.Join(known[:last], ", "), known[last])
}

func nameOf[T ~uint8](v T, names []string) string {
	if int(v) < len(names) {
		return names[v]
	}
	return "unknown"
}

func modeNames() []string   { return []string{NAT: "nat", L2DSR: "l2dsr", L3DSR: "l3dsr", Mark: "mark"} }
func tunnelNames() []string { return []string{NoTunnel: "", IPIP: "ipip", GUE: "gue"} }
func affinityNames() []string {
	return []string{ByFlow: "flow", BySource: "source", ByCID: "cid", NoSourcePort: "no_source_port", DestinationPort: "destination_port"}
}
func pingNames() []string  { return []string{PingBackend: "backend", PingBalancer: "balancer"} }
func stateNames() []string { return []string{Up: "up", Draining: "draining", Down: "down"} }
func probeNames() []string {
	return []string{ProbeTCP: "tcp", ProbeUDP: "udp", ProbeHTTP: "http", ProbeCoAP: "coap_ping", ProbeSTUN: "stun_binding"}
}

func backendActionNames() []string {
	return []string{ActForward: "forward", ActDrop: "drop", ActReject: "reject"}
}

func hashNames() []string     { return []string{SipHash: "siphash", NFQLB: "nfqlb"} }
func sctpHashNames() []string { return []string{sctpUnset: "", SCTPFlow: "flow", SCTPPorts: "ports"} }

func (m Mode) String() string          { return nameOf(m, modeNames()) }
func (t Tunnel) String() string        { return nameOf(t, tunnelNames()) }
func (a Affinity) String() string      { return nameOf(a, affinityNames()) }
func (p PingAnswer) String() string    { return nameOf(p, pingNames()) }
func (s State) String() string         { return nameOf(s, stateNames()) }
func (p Probe) String() string         { return nameOf(p, probeNames()) }
func (a BackendAction) String() string { return nameOf(a, backendActionNames()) }
func (h Hash) String() string          { return nameOf(h, hashNames()) }
func (h SCTPHash) String() string      { return nameOf(h, sctpHashNames()) }
func (p Protocol) String() string      { return flow.ProtocolName(uint8(p)) }

// MarshalText writes the name, for JSON; likewise below.
func (m Mode) MarshalText() ([]byte, error)       { return []byte(m.String()), nil }
func (t Tunnel) MarshalText() ([]byte, error)     { return []byte(t.String()), nil }
func (a Affinity) MarshalText() ([]byte, error)   { return []byte(a.String()), nil }
func (p PingAnswer) MarshalText() ([]byte, error) { return []byte(p.String()), nil }
func (s State) MarshalText() ([]byte, error)      { return []byte(s.String()), nil }
func (p Probe) MarshalText() ([]byte, error)      { return []byte(p.String()), nil }

func (h Hash) MarshalText() ([]byte, error)     { return []byte(h.String()), nil }
func (h SCTPHash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// MarshalText writes the name.
func (a BackendAction) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads forward, drop or reject.
func (a *BackendAction) UnmarshalText(text []byte) (err error) {
	*a, err = parseName[BackendAction]("action", string(text), backendActionNames())
	return err
}

// UnmarshalText reads siphash or nfqlb.
func (h *Hash) UnmarshalText(text []byte) (err error) {
	*h, err = parseName[Hash]("hash", string(text), hashNames())
	return err
}

// UnmarshalText reads flow or ports.
func (h *SCTPHash) UnmarshalText(text []byte) (err error) {
	*h, err = parseName[SCTPHash]("SCTP hash", string(text), sctpHashNames())
	return err
}

// UnmarshalText reads nat, l2dsr, l3dsr or mark.
func (m *Mode) UnmarshalText(text []byte) (err error) {
	*m, err = parseName[Mode]("mode", string(text), modeNames())
	return err
}

// UnmarshalText reads up, draining or down: what String wrote, for clients of a status page.
func (s *State) UnmarshalText(text []byte) (err error) {
	*s, err = parseName[State]("state", string(text), stateNames())
	return err
}

// UnmarshalText reads ipip or gue.
func (t *Tunnel) UnmarshalText(text []byte) (err error) {
	*t, err = parseName[Tunnel]("tunnel", string(text), tunnelNames())
	return err
}

// UnmarshalText reads flow, source, cid, no_source_port or destination_port.
func (a *Affinity) UnmarshalText(text []byte) (err error) {
	*a, err = parseName[Affinity]("affinity", string(text), affinityNames())
	return err
}

// UnmarshalText reads backend or balancer.
func (p *PingAnswer) UnmarshalText(text []byte) (err error) {
	*p, err = parseName[PingAnswer]("answer to pings", string(text), pingNames())
	return err
}

// UnmarshalText reads tcp, udp, http, coap_ping or stun_binding.
func (p *Probe) UnmarshalText(text []byte) (err error) {
	*p, err = parseName[Probe]("probe", string(text), probeNames())
	return err
}

// Protocol is an IP protocol number, written tcp, udp or sctp.
type Protocol uint8

// UnmarshalText reads tcp, udp or sctp.
func (p *Protocol) UnmarshalText(text []byte) error {
	switch string(text) {
	case "tcp":
		*p = Protocol(TCP)
	case "udp":
		*p = Protocol(UDP)
	case "sctp":
		*p = Protocol(SCTP)
	default:
		return fmt.Errorf("%q is not a protocol; write tcp, udp or sctp", text)
	}
	return nil
}

// CIDProtocol is one wire format that may carry a CID.
type CIDProtocol cid.Protocols

// UnmarshalText reads dtls12, dtls13 or quic.
func (p *CIDProtocol) UnmarshalText(text []byte) error {
	switch string(text) {
	case "dtls12":
		*p = CIDProtocol(cid.DTLS12)
	case "dtls13":
		*p = CIDProtocol(cid.DTLS13)
	case "quic":
		*p = CIDProtocol(cid.QUIC)
	default:
		return fmt.Errorf("%q is not a CID protocol; write dtls12, dtls13 or quic", text)
	}
	return nil
}

// PortRange is a port, a range, or any port. The zero value is unset.
type PortRange struct{ First, Last uint16 }

// UnmarshalText reads 5684, 5000-5999 or any.
func (p *PortRange) UnmarshalText(text []byte) error {
	if string(text) == "any" {
		*p = PortRange{0, 65535}
		return nil
	}
	low, high, isRange := strings.Cut(string(text), "-")
	first, err := parsePort(low)
	if err != nil {
		return err
	}
	last := first
	if isRange {
		if last, err = parsePort(high); err != nil {
			return err
		}
	}
	if last < first {
		return fmt.Errorf("port range %s ends before it starts; write %d-%d", text, last, first)
	}
	*p = PortRange{first, last}
	return nil
}

func (p PortRange) String() string {
	switch {
	case p == PortRange{0, 65535}:
		return "any"
	case p.First == p.Last:
		return strconv.Itoa(int(p.First))
	default:
		return fmt.Sprintf("%d-%d", p.First, p.Last)
	}
}

func parsePort(text string) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%q is not a port; write 1 to 65535, a range such as 5000-5999, or any", text)
	}
	return uint16(n), nil
}

// AddressPrefix is an address, or a prefix without host bits. IPv4 addresses stay IPv4.
type AddressPrefix struct{ netip.Prefix }

// UnmarshalText reads 192.0.2.1, 2001:db8::1, 192.0.2.0/24 or 2001:db8::/64.
func (a *AddressPrefix) UnmarshalText(text []byte) error {
	if !strings.Contains(string(text), "/") {
		address, err := netip.ParseAddr(string(text))
		if err != nil || address.Zone() != "" {
			return addresstext.Error("an address", string(text), "write an IPv4 or IPv6 address or prefix, such as 192.0.2.1 or 2001:db8::/64")
		}
		address = address.Unmap()
		a.Prefix = netip.PrefixFrom(address, address.BitLen())
		return nil
	}
	prefix, err := netip.ParsePrefix(string(text))
	if err != nil || prefix.Addr().Is4In6() {
		return addresstext.Error("a prefix", string(text), "write an address and a length, such as 192.0.2.0/24 or 2001:db8::/64")
	}
	if prefix != prefix.Masked() {
		return fmt.Errorf("prefix %s has host bits; write %s for the prefix or %s for the address", prefix, prefix.Masked(), prefix.Addr())
	}
	a.Prefix = prefix
	return nil
}

// Timeout is an idle time, or never. The zero value is unset.
type Timeout time.Duration

// UnmarshalText reads a duration with its unit (30s, 2h) or never.
func (t *Timeout) UnmarshalText(text []byte) error {
	if string(text) == "never" {
		*t = Timeout(Never)
		return nil
	}
	d, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%q is not a time; write a number with its unit, such as 30s or 2h, or never", text)
	}
	if d <= 0 {
		return fmt.Errorf("time %s is not positive; write at least %s, or never", d, minTimeout)
	}
	*t = Timeout(d)
	return nil
}

// HexKey is a 16-byte secret. It never prints.
type HexKey [16]byte

// UnmarshalText reads 32 hex digits.
func (k *HexKey) UnmarshalText(text []byte) error {
	if len(text) != 32 {
		return fmt.Errorf("key of %d characters; write 32 hex digits, for instance from `openssl rand -hex 16`", len(text))
	}
	if _, err := hex.Decode(k[:], text); err != nil {
		return fmt.Errorf("key holds something other than hex digits; take it from `openssl rand -hex 16`")
	}
	return nil
}

// MarshalText hides the key.
func (k HexKey) MarshalText() ([]byte, error) { return []byte("hidden"), nil }

func (k HexKey) String() string { return "hidden" }

// Secret says that the key is not shown.
func (k HexKey) Secret() bool { return true }

// ItemName is protocol, address and port, by which a VIP is named in its service: udp:192.0.2.1:53, tcp:[2001:db8::1]:443 or
// udp:192.0.2.0/24:5000-5999; empty if one is missing.
func (v VIPSpec) ItemName() string {
	if v.Protocol == 0 || !v.Address.IsValid() || v.Port == (PortRange{}) {
		return ""
	}
	return strings.Replace(VIP{Prefix: v.Address.Prefix, Protocol: uint8(v.Protocol), First: v.Port.First, Last: v.Port.Last}.String(), " ", ":", 1)
}

// ItemOf returns the keys of a VIP that is named so.
func (VIPSpec) ItemOf(name string) (map[string]string, error) {
	protocol, rest, _ := strings.Cut(name, ":")
	at := strings.LastIndexByte(rest, ':')
	if at <= 0 || protocol == "" || at+1 == len(rest) {
		return nil, fmt.Errorf("%q is not the name of a VIP; write PROTOCOL:ADDRESS:PORT, such as udp:192.0.2.1:53 or tcp:[2001:db8::1]:443", name)
	}
	address := strings.TrimSuffix(strings.TrimPrefix(rest[:at], "["), "]")
	return map[string]string{"protocol": protocol, "address": address, "port": rest[at+1:]}, nil
}
