package gateway

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-lb/weir/internal/keyerror"
)

func (c *Config) validateListeners(clusters map[string]bool) error {
	if len(c.Listeners) > maxListeners {
		return keyerror.Errorf("listeners", "%d listeners are more than %d", len(c.Listeners), maxListeners)
	}
	var wrong keyerror.List
	names, sockets := map[string]bool{}, map[string]int{}
	for i := range c.Listeners {
		l := c.Listeners[i]
		at := fmt.Sprintf("listeners[%d]", i)
		wrong.Add(keyerror.At(at, l.validate(clusters)))
		wrong.If(names[l.Name], at+".name", "a second listener %q; each needs its own name", l.Name)
		names[l.Name] = true
		l.setDefaults()
		for _, socket := range l.sockets() {
			if other, ok := sockets[socket]; ok {
				wrong.If(true, at+".port", "%s is taken by listeners[%d]; give one of them another port or address", socket, other)
			}
			sockets[socket] = i
		}
	}
	return wrong.Err()
}

// sockets returns the addresses that the listener binds. The address :: covers both families.
func (l *ListenerConfig) sockets() []string {
	transport := "udp"
	if l.Protocol.Stream() {
		transport = "tcp"
	}
	at := func(a netip.Addr) string { return transport + " " + netip.AddrPortFrom(a, l.Port).String() }
	if l.Address == netip.IPv6Unspecified() {
		return []string{at(l.Address), at(netip.IPv4Unspecified())}
	}
	return []string{at(l.Address.Unmap())}
}

func (l *ListenerConfig) validate(clusters map[string]bool) error {
	var wrong keyerror.List
	wrong.Add(keyerror.At("name", checkName(l.Name, false)))
	switch l.Protocol {
	case "", UDP, TCP, TLS, DTLS:
		wrong.Add(l.validateCertificate())
	default:
		wrong.If(true, "protocol", "no protocol %q; write udp, tcp, tls or dtls", l.Protocol)
	}
	wrong.Add(keyerror.At("address", checkAddress(l.Address, true)))
	wrong.Add(l.validateRelay())
	if l.Public != "" {
		wrong.Add(keyerror.At("public", checkHostPort(l.Public)))
	}
	for i, route := range l.Routes {
		at := fmt.Sprintf("routes[%d]", i)
		wrong.If(!clusters[route], at, "there is no cluster %q; add it to clusters, or name one of: %s", route, nameList(clusters))
		wrong.If(slices.Contains(l.Routes[:i], route), at, "%q stands here twice; remove one", route)
	}
	return wrong.Err()
}

func (l *ListenerConfig) validateRelay() error {
	relay, err := oneOfEach("relay", l.Relay)
	if err != nil {
		return err
	}
	public, err := oneOfEach("relay_public", l.RelayPublic)
	if err != nil {
		return err
	}
	for family, name := range [2]string{"IPv4", "IPv6"} {
		if public[family] && len(l.Relay) > 0 && !relay[family] {
			return keyerror.Errorf("relay_public", "an %s address, but relay has none; write the one that the NAT translates to into relay", name)
		}
	}
	if r := l.RelayPorts; r != (PortRange{}) {
		if r.Min < 1024 {
			return keyerror.Errorf("relay_ports", "%s begins below 1024, where other services of the host live; write ports from 1024 on", r)
		}
		if r.Count() < 2 {
			return keyerror.Errorf("relay_ports", "%s is one port; each allocation needs its own, write a range such as 49152-65535", r)
		}
	}
	return nil
}

// oneOfEach returns which families (IPv4, IPv6) occur in a list with at most one address of each.
func oneOfEach(key string, addresses []netip.Addr) (families [2]bool, err error) {
	for i, address := range addresses {
		if err := checkAddress(address, false); err != nil || !address.IsValid() {
			return families, keyerror.At(fmt.Sprintf("%s[%d]", key, i), cmpErr(err, errors.New("empty; write an address")))
		}
		family := 0
		if address.Unmap().Is6() {
			family = 1
		}
		if families[family] {
			return families, keyerror.Errorf(fmt.Sprintf("%s[%d]", key, i), "a second address of the family of %s; write at most one IPv4 and one IPv6 address", address)
		}
		families[family] = true
	}
	return families, nil
}

func (l *ListenerConfig) validateCertificate() error {
	files, inline := l.Certificate != "" || l.Key != "", len(l.CertificatePEM) > 0 || len(l.KeyPEM) > 0
	switch {
	case !l.Protocol.Secure() && (files || inline || l.SelfSigned):
		key := "certificate"
		switch {
		case l.SelfSigned:
			key = "self_signed"
		case l.Certificate == "" && l.Key != "":
			key = "key"
		}
		return keyerror.Errorf(key, "a listener of protocol %s has no certificate; set protocol to tls or dtls, or remove it", l.Protocol)
	case !l.Protocol.Secure():
		return nil
	case l.SelfSigned && (files || inline):
		return keyerror.Errorf("self_signed", "certificate and key are given as well; remove one or the other")
	case l.SelfSigned:
		return nil
	case files && (l.Certificate == "" || l.Key == ""):
		missing, given := "certificate", "key"
		if l.Key == "" {
			missing, given = given, missing
		}
		return keyerror.Errorf(given, "there is no %s to it; name both PEM files", missing)
	case !files && !inline:
		return keyerror.Errorf("protocol", "%s needs a certificate; name the PEM files with certificate and key, or set self_signed: true", l.Protocol)
	}
	return nil
}

func checkAddress(a netip.Addr, wildcard bool) error {
	switch {
	case !a.IsValid():
		return nil
	case a.Zone() != "":
		return fmt.Errorf("%s has a zone; write an address that holds on every interface", a)
	case a.Is4In6():
		return fmt.Errorf("%s is IPv4 in IPv6 clothes; write %s", a, a.Unmap())
	case a.IsMulticast(), a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return fmt.Errorf("%s is no address of one host; write an address of this one", a)
	case a.IsUnspecified() && !wildcard:
		return fmt.Errorf("%s is no address that peers could send to; write an address of this host", a)
	}
	return nil
}

func checkHostPort(text string) error {
	host, port, err := net.SplitHostPort(text)
	if n, bad := strconv.ParseUint(port, 10, 16); err != nil || host == "" || bad != nil || n == 0 || len(host) > maxName || strings.ContainsAny(host, " /?#@") {
		return fmt.Errorf("%q is no HOST:PORT; write for example 198.51.100.7:3478", text)
	}
	return nil
}

func nameList(names map[string]bool) string {
	const maxListed = 8
	var list []string
	for name := range names {
		list = append(list, name)
	}
	slices.Sort(list)
	if len(list) == 0 {
		return "(there are no clusters)"
	}
	if len(list) > maxListed {
		list = append(list[:maxListed], "…")
	}
	return strings.Join(list, ", ")
}
