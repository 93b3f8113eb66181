package turncat

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	dtls "github.com/weir-lb/weir/internal/dtls/client"
	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/record"
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
	trust := &handshake.Credentials{Roots: c.Roots, TrustAll: c.Insecure}
	if c.Roots == nil && !c.Insecure {
		var err error
		if trust.Roots, err = x509.SystemCertPool(); err != nil {
			return nil, fmt.Errorf("read the system's trusted certificates: %w", err)
		}
	}
	var credentials atomic.Pointer[handshake.Credentials]
	credentials.Store(trust)
	socket, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to)) // connected, so that it receives an error if no program listens there
	if err != nil {
		return nil, err
	}
	conn, err := dtls.Dial(ctx, socket, handshake.ClientConfig{
		Config:     handshake.Config{Suites: record.CertificateSuites(), Credentials: &credentials},
		ServerName: c.serverName(), OfferCID: true, OfferRoutability: true,
	})
	if err != nil {
		return nil, fmt.Errorf("%w%s", err, certificateHint(err))
	}
	return &dtlsConn{UDPConn: socket, session: conn}, nil
}

// dtlsConn is a DTLS session as a net.Conn.
type dtlsConn struct {
	*net.UDPConn // for addresses and deadlines
	session      *dtls.Conn
}

func (c *dtlsConn) Read(b []byte) (int, error) { return c.session.Read(b) }

func (c *dtlsConn) Write(b []byte) (int, error) { return c.session.Write(b) }

func (c *dtlsConn) Close() error { return c.session.Close() }

func certificateHint(err error) string {
	var unknown *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	if errors.As(err, &unknown) || errors.As(err, &authority) || errors.As(err, &name) || errors.As(err, &invalid) {
		return "; trust its authority with --ca FILE, name it with --sni NAME, or take any certificate with --insecure"
	}
	return ""
}
