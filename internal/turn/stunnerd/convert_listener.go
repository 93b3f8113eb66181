package stunnerd

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/weir-lb/weir/internal/turn/gateway"
)

// nodeAddress is what the operator writes where it does not know the node's address yet.
const nodeAddress = "__node_address_placeholder"

func (c *converter) listeners(f *Config) error {
	known := map[string]bool{}
	for i := range c.result.Gateway.Clusters {
		known[c.result.Gateway.Clusters[i].Name] = true
	}
	for i := range f.Listeners {
		from := &f.Listeners[i]
		at := fmt.Sprintf("listeners[%d].", i)
		to, err := c.listener(from)
		if err != nil {
			return fmt.Errorf("%s%w", at, err)
		}
		for _, text := range from.Routes {
			route := c.expand(text)
			if !known[route] { // STUNner runs with such a route, and an operator may send it for a moment
				c.note("%sroutes: there is no cluster %q; nothing is reached through it", at, route)
				continue
			}
			to.Routes = append(to.Routes, route)
		}
		c.result.Gateway.Listeners = append(c.result.Gateway.Listeners, to)
	}
	return nil
}

func (c *converter) listener(from *Listener) (to gateway.ListenerConfig, err error) {
	to.Name = c.expand(from.Name)
	protocol := strings.ToLower(cmp.Or(c.expand(from.Protocol), "TURN-UDP"))
	to.Protocol = gateway.Protocol(strings.TrimPrefix(protocol, "turn-"))
	switch to.Protocol {
	case gateway.UDP, gateway.TCP, gateway.TLS, gateway.DTLS:
	default:
		return to, fmt.Errorf("protocol: no protocol %q; write TURN-UDP, TURN-TCP, TURN-TLS or TURN-DTLS", from.Protocol)
	}
	address := c.expand(from.Address)
	switch {
	case address == nodeAddress:
		return to, fmt.Errorf("address: %s is filled in by STUNner's operator; write the node's address, or $STUNNER_ADDR with that variable set", nodeAddress)
	case address == "":
		address = "0.0.0.0"
	}
	if to.Address, err = netip.ParseAddr(address); err != nil {
		return to, fmt.Errorf("address: no address %q; write an IPv4 or IPv6 address of this host", address)
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
	if err := c.relayPorts(from, &to); err != nil {
		return to, err
	}
	if !to.Protocol.Secure() {
		return to, nil // STUNner ignores cert and key here
	}
	for _, part := range []struct {
		key  string
		text Text
		to   *[]byte
	}{{"cert", from.Cert, &to.CertificatePEM}, {"key", from.Key, &to.KeyPEM}} {
		if *part.to, err = pem(c.expand(part.text)); err != nil {
			return to, fmt.Errorf("%s: %w", part.key, err)
		}
	}
	return to, nil
}

func (c *converter) port(key, text string) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("%s: no port %q; write a number from 1 to 65535", key, text)
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

// relayPorts honours the range of v1alpha1. Its default, 1 to 65535, is no wish.
func (c *converter) relayPorts(from *Listener, to *gateway.ListenerConfig) error {
	low, high := cmp.Or(c.expand(from.MinRelayPort), "0"), cmp.Or(c.expand(from.MaxRelayPort), "0")
	first, err := c.port("min_relay_port", low)
	if err != nil {
		return err
	}
	last, err := c.port("max_relay_port", high)
	if err != nil {
		return err
	}
	first, last = cmp.Or(first, 1), cmp.Or(last, 65535)
	if first <= 1 && last == 65535 {
		return nil
	}
	if first < 1024 && last > 1024 {
		c.note("listener %s: relay ports below 1024 are left to other services", to.Name)
		first = 1024
	}
	if last < first {
		return fmt.Errorf("max_relay_port: %d is below min_relay_port, %d; swap them", last, first)
	}
	to.RelayPorts = gateway.PortRange{Min: first, Max: last}
	return nil
}

// pem takes the base64 off a PEM file; plain PEM passes.
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
