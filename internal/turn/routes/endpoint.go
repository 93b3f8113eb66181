package routes

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/weir-lb/weir/internal/addresstext"
)

// ParseEndpoint reads one endpoint: an address, a prefix or a DNS name, with a port, a port range or none.
//
//	10.0.0.0/8   10.1.0.0/16:10000-20000   192.0.2.1:5000   2001:db8::/32   [2001:db8::1]:5000   [2001:db8::/32]:5000-5999
//	media.example   media.example:5000   10.0.0.1:<5000-5999> (as STUNner writes it)
//
// A prefix with bits beyond its length is refused: 10.1.2.3/8 is either 10.0.0.0/8 or 10.1.2.3.
func ParseEndpoint(text string) (Endpoint, error) {
	host, ports, err := splitPorts(text)
	if err != nil {
		return Endpoint{}, err
	}
	var e Endpoint
	if ports != "" {
		if e.MinPort, e.MaxPort, err = parsePorts(ports); err != nil {
			return Endpoint{}, err
		}
	}
	if address, err := netip.ParseAddr(host); err == nil {
		if address.Zone() != "" {
			return Endpoint{}, fmt.Errorf("%s has a zone; write the address without %%%s", text, address.Zone())
		}
		address = address.Unmap()
		e.Prefix = netip.PrefixFrom(address, address.BitLen())
		return e, nil
	}
	if strings.Contains(host, "/") {
		prefix, err := netip.ParsePrefix(host)
		if err != nil || prefix.Addr().Is4In6() {
			return Endpoint{}, fmt.Errorf("no prefix %q; write one such as 10.0.0.0/8 or 2001:db8::/32", host)
		}
		if prefix != prefix.Masked() {
			return Endpoint{}, fmt.Errorf("%s has bits beyond its length; write %s, or the address alone", prefix, prefix.Masked())
		}
		e.Prefix = prefix
		return e, nil
	}
	if !addresstext.IsName(host) {
		return Endpoint{}, fmt.Errorf("no endpoint %q; write an address, a prefix or a DNS name, each with a port, a range or none: 10.1.0.0/16:10000-20000", text)
	}
	e.Name = strings.ToLower(host) // a final dot is kept, because it prevents the resolver from using its search list
	return e, nil
}

// splitPorts splits an endpoint at the colon before its ports, if it has one. It removes the brackets of an IPv6
// address with ports.
func splitPorts(text string) (host, ports string, err error) {
	if inside, ok := strings.CutPrefix(text, "["); ok {
		host, rest, closed := strings.Cut(inside, "]")
		ports, colon := strings.CutPrefix(rest, ":")
		if !closed || rest != "" && (!colon || ports == "") || !strings.Contains(host, ":") {
			return "", "", fmt.Errorf("no endpoint %q; write for example [2001:db8::1]:5000", text)
		}
		return host, ports, nil
	}
	at := strings.LastIndexByte(text, ':')
	switch {
	case at < 0, strings.Count(text, ":") > 1 && !strings.HasSuffix(text, ">"): // an IPv6 address or prefix without ports
		return text, "", nil
	case at == len(text)-1:
		return "", "", fmt.Errorf("no port behind the colon of %q; write one, or remove the colon", text)
	}
	return text[:at], text[at+1:], nil
}

// parsePorts reads PORT, MIN-MAX or <MIN-MAX>.
func parsePorts(text string) (low, high uint16, err error) {
	inside := text
	if strings.HasPrefix(text, "<") && strings.HasSuffix(text, ">") {
		inside = text[1 : len(text)-1]
	}
	first, last, isRange := strings.Cut(inside, "-")
	if !isRange {
		last = first
	}
	from, err1 := strconv.ParseUint(first, 10, 16)
	to, err2 := strconv.ParseUint(last, 10, 16)
	if err1 != nil || err2 != nil || from == 0 || to < from {
		return 0, 0, fmt.Errorf("no ports %q; write 1 to 65535, or a range such as 10000-20000", text)
	}
	return uint16(from), uint16(to), nil
}

func (e Endpoint) String() string {
	host := e.Name
	if host == "" {
		host = e.Prefix.String()
		if e.Prefix.IsSingleIP() {
			host = e.Prefix.Addr().String()
		}
		if e.MinPort != 0 && e.Prefix.Addr().Is6() {
			host = "[" + host + "]"
		}
	}
	switch {
	case e.MinPort == 0:
		return host
	case e.MinPort == e.MaxPort:
		return fmt.Sprintf("%s:%d", host, e.MinPort)
	default:
		return fmt.Sprintf("%s:%d-%d", host, e.MinPort, e.MaxPort)
	}
}
