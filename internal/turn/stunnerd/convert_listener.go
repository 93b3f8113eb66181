package stunnerd

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/weir-lb/weir/internal/keyerror"
	"github.com/weir-lb/weir/internal/turn/gateway"
)

// nodeAddress is the placeholder that STUNner's operator writes if each node has an address of its own (relay address discovery). Its config
// discovery service replaces it by the node's address; a mounted file still contains it.
const nodeAddress = "__node_address_placeholder"

func (c *converter) listeners(f *Config) error {
	known := map[string]bool{}
	for i := range c.result.Gateway.Clusters {
		known[c.result.Gateway.Clusters[i].Name] = true
	}
	for i := range f.Listeners {
		from := &f.Listeners[i]
		at := fmt.Sprintf("listeners[%d]", i)
		to, err := c.listener(at, from)
		if err != nil {
			return keyerror.At(at, err)
		}
		for _, text := range from.Routes {
			route := c.expand(text)
			if !known[route] { // STUNner accepts such a route, and an operator may send it temporarily
				c.note(at+".routes", "there is no cluster %q; nothing is reached through it", route)
				continue
			}
			to.Routes = append(to.Routes, route)
		}
		c.result.Gateway.Listeners = append(c.result.Gateway.Listeners, to)
	}
	return nil
}

func (c *converter) listener(at string, from *Listener) (to gateway.ListenerConfig, err error) {
	to.Name = c.expand(from.Name)
	protocol := strings.ToLower(cmp.Or(c.expand(from.Protocol), "TURN-UDP"))
	to.Protocol = gateway.Protocol(strings.TrimPrefix(protocol, "turn-"))
	switch to.Protocol {
	case gateway.UDP, gateway.TCP, gateway.TLS, gateway.DTLS:
	default:
		return to, keyerror.Errorf("protocol", "no protocol %q; write TURN-UDP, TURN-TCP, TURN-TLS or TURN-DTLS", from.Protocol)
	}
	address := c.expand(from.Address)
	switch address {
	case nodeAddress:
		if address, err = c.nodeAddress(at, &to); err != nil {
			return to, err
		}
	case "":
		address = "0.0.0.0"
	}
	if to.Address, err = netip.ParseAddr(address); err != nil {
		return to, keyerror.Errorf("address", "no address %q; write an IPv4 or IPv6 address of this host", address)
	}
	to.Address = to.Address.Unmap()
	if to.Port, err = c.port("port", cmp.Or(c.expand(from.Port), defaultPort)); err != nil {
		return to, err
	}
	if to.Port == 0 {
		to.Port = gateway.DefaultPort
	}
	if err := c.public(from, &to); err != nil {
		return to, err
	}
	c.relayPorts(at, from, &to)
	if !to.Protocol.Secure() {
		return to, nil // STUNner ignores cert and key here
	}
	for _, part := range []struct {
		key  string
		text Text
		to   *[]byte
	}{{"cert", from.Cert, &to.CertificatePEM}, {"key", from.Key, &to.KeyPEM}} {
		if *part.to, err = pem(c.expand(part.text)); err != nil {
			return to, keyerror.At(part.key, err)
		}
	}
	return to, nil
}

func (c *converter) port(key, text string) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0, keyerror.Errorf(key, "no port %q; write a number from 1 to 65535", text)
	}
	return uint16(n), nil
}

func (c *converter) public(from *Listener, to *gateway.ListenerConfig) error {
	host := strings.Trim(c.expand(from.PublicAddress), "[]")
	port := to.Port
	if text := c.expand(from.PublicPort); text != "" {
		n, err := c.port("public_port", text)
		if err != nil {
			return err
		}
		if n != 0 {
			port = n
		}
	}
	if host != "" {
		to.Public = net.JoinHostPort(host, strconv.Itoa(int(port)))
	}
	return nil
}

// nodeAddress replaces the placeholder by the node's address: $STUNNER_NODE_ADDR, or $STUNNER_NODENAME if nodes are
// named by their address. If $STUNNER_ADDR is another address, the node's address is that of a 1:1 NAT: clients receive it, and
// sockets bind $STUNNER_ADDR.
func (c *converter) nodeAddress(at string, to *gateway.ListenerConfig) (string, error) {
	text := strings.TrimSpace(c.getenv("STUNNER_NODE_ADDR"))
	if text == "" {
		text = strings.TrimSpace(c.getenv("STUNNER_NODENAME"))
	}
	node, err := netip.ParseAddr(text)
	if err != nil {
		return "", keyerror.Errorf("address", "%s: the node's address is not known, and %q is none; set STUNNER_NODE_ADDR to it, in Kubernetes from the field status.hostIP, or write the address",
			nodeAddress, text)
	}
	own, err := netip.ParseAddr(strings.TrimSpace(c.getenv(ownAddress)))
	if err != nil || own == node || own.Is4() != node.Is4() {
		return node.String(), nil
	}
	to.Relay, to.RelayPublic = []netip.Addr{own}, []netip.Addr{node}
	c.note(at+".address", "sockets bind $STUNNER_ADDR, %s, and clients receive the node's address, %s", own, node)
	return own.String(), nil
}

// relayPorts applies the port range of v1alpha1. Its default, 1 to 65535, is not a choice of the operator. stunnerd
// ignores both keys, so a range that cannot be applied is only a note.
func (c *converter) relayPorts(at string, from *Listener, to *gateway.ListenerConfig) {
	low, high := cmp.Or(c.expand(from.MinRelayPort), "0"), cmp.Or(c.expand(from.MaxRelayPort), "0")
	first, errLow := c.port("min_relay_port", low)
	last, errHigh := c.port("max_relay_port", high)
	first, last = cmp.Or(first, 1), cmp.Or(last, 65535)
	switch {
	case errLow != nil || errHigh != nil || last <= max(first, lowestRelayPort):
		c.note(at+".min_relay_port", "%s to %s is no range of relay ports from %d up; the default range is used", low, high, lowestRelayPort)
	case first <= 1 && last == 65535:
	default:
		if first < lowestRelayPort {
			c.note(at+".min_relay_port", "relay ports below %d are left to other services", lowestRelayPort)
			first = lowestRelayPort
		}
		to.RelayPorts = gateway.PortRange{Min: first, Max: last}
	}
}

// lowestRelayPort is the lowest port that gateway.Config accepts.
const lowestRelayPort = 1024

// pem decodes the base64 of a PEM file; plain PEM is returned unchanged.
func pem(text string) ([]byte, error) {
	if text == "" {
		return nil, fmt.Errorf("empty; a TLS or DTLS listener needs it, as base64 of the PEM file")
	}
	if strings.HasPrefix(text, "-----BEGIN ") {
		return []byte(text), nil
	}
	decoded, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil || !strings.Contains(string(decoded), "-----BEGIN ") {
		return nil, fmt.Errorf("it is no base64 of a PEM file; write the output of: base64 -w0 FILE")
	}
	return decoded, nil
}
