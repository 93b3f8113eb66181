package turncat

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/pion/dtls/v3"
	dtlsnet "github.com/pion/dtls/v3/pkg/net"
)

// dialTimeout limits look-up, connection and handshake together.
const dialTimeout = 10 * time.Second

// resolve looks host up. If a name has IPv4 and IPv6 addresses, it returns an IPv4 address.
func resolve(ctx context.Context, what, host string, port uint16) (netip.AddrPort, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return netip.AddrPortFrom(ip.Unmap(), port), nil
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	all, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil || len(all) == 0 {
		return netip.AddrPort{}, fmt.Errorf("look %s %s up: %w", what, host, err)
	}
	best := all[0].Unmap()
	for _, a := range all {
		if a.Unmap().Is4() {
			best = a.Unmap()
			break
		}
	}
	return netip.AddrPortFrom(best, port), nil
}

func (c *Config) serverName() string {
	if c.ServerName != "" {
		return c.ServerName
	}
	return c.Server.Host
}

func (c *Config) tlsConfig() *tls.Config {
	return &tls.Config{ServerName: c.serverName(), RootCAs: c.Roots, InsecureSkipVerify: c.Insecure, MinVersion: tls.VersionTLS12} //nolint:gosec // --insecure
}

// dialServer opens a TCP, TLS or DTLS connection to the TURN server.
func (c *Config) dialServer(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	what := fmt.Sprintf("connect to the TURN server at %v over %s", to, c.Server.Transport)
	if c.Server.Transport == DTLS {
		conn, err := c.dialDTLS(ctx, to)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
		return conn, nil
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", to.String())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if c.Server.Transport == TCP {
		return conn, nil
	}
	secure := tls.Client(conn, c.tlsConfig())
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close() //nolint:errcheck // the error that matters is err
		return nil, fmt.Errorf("%s: %w%s", what, err, certificateHint(err))
	}
	return secure, nil
}

func (c *Config) dialDTLS(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	packets, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to)) // connected, so that it receives an error if nobody listens there
	if err != nil {
		return nil, err
	}
	conn, err := dtls.Client(dtlsnet.PacketConnFromConn(packets), packets.RemoteAddr(), &dtls.Config{ //nolint:staticcheck // as internal/coap/client
		ServerName: c.serverName(), RootCAs: c.Roots, InsecureSkipVerify: c.Insecure,
		ExtendedMasterSecret: dtls.RequestExtendedMasterSecret,
	})
	if err == nil {
		err = conn.HandshakeContext(ctx)
	}
	if err != nil {
		packets.Close() //nolint:errcheck // the error that matters is err
		return nil, fmt.Errorf("%w%s", err, certificateHint(err))
	}
	return &secureConn{conn, packets}, nil
}

// secureConn closes also the socket below pion's connection.
type secureConn struct {
	*dtls.Conn
	packets net.Conn
}

func (c *secureConn) Close() error {
	c.SetWriteDeadline(time.Now().Add(time.Second)) //nolint:errcheck // the alert is a courtesy
	err := c.Conn.Close()
	c.packets.Close() //nolint:errcheck // the connection's error counts
	return err
}

func certificateHint(err error) string {
	var unknown *tls.CertificateVerificationError
	if errors.As(err, &unknown) {
		return "; trust its authority with --ca FILE, name it with --sni NAME, or take any certificate with --insecure"
	}
	return ""
}
