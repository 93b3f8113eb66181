package client

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/pion/dtls/v3"
)

// dial opens a UDP or DTLS connection to the target.
func dial(ctx context.Context, target Target, cfg RequestConfig) (net.Conn, Session, error) {
	address, err := target.Resolve()
	if err != nil {
		return nil, Session{}, err
	}
	remote := net.UDPAddrFromAddrPort(address)
	if !target.Secure {
		conn, err := net.DialUDP("udp", nil, remote)
		return conn, Session{}, err
	}
	packets, err := net.ListenUDP("udp", nil)
	if err != nil {
		return nil, Session{}, err
	}
	conn, err := dtls.Client(packets, remote, dtlsConfig(cfg))
	if err != nil {
		packets.Close() //nolint:errcheck // the error that matters is err
		return nil, Session{}, err
	}
	limited, cancel := context.WithTimeout(ctx, cfg.Timeout)
	defer cancel()
	if err := conn.HandshakeContext(limited); err != nil {
		conn.Close()    //nolint:errcheck // the error that matters is err
		packets.Close() //nolint:errcheck // as above
		if errors.Is(err, context.DeadlineExceeded) || limited.Err() == context.DeadlineExceeded {
			err = fmt.Errorf("no DTLS handshake within %v; is a DTLS server there?", cfg.Timeout)
		}
		return nil, Session{}, err
	}
	session, err := describe(conn, target, cfg)
	if err != nil {
		conn.Close() //nolint:errcheck // the error that matters is err
		return nil, Session{}, err
	}
	return &secureConn{Conn: conn, packets: packets}, session, nil
}

// secureConn closes the socket below pion's connection too.
type secureConn struct {
	*dtls.Conn
	packets net.PacketConn
}

func (c *secureConn) Close() error {
	c.Conn.SetWriteDeadline(time.Now().Add(time.Second)) //nolint:errcheck // the alert is a courtesy
	err := c.Conn.Close()
	return errors.Join(err, closeQuietly(c.packets))
}

func closeQuietly(c net.PacketConn) error {
	if err := c.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

func dtlsConfig(cfg RequestConfig) *dtls.Config {
	c := &dtls.Config{
		PSK:             func([]byte) ([]byte, error) { return cfg.Secret, nil },
		PSKIdentityHint: []byte(cfg.Identity),
		CipherSuites: []dtls.CipherSuiteID{
			dtls.TLS_PSK_WITH_AES_128_CCM_8, dtls.TLS_PSK_WITH_AES_128_CCM, dtls.TLS_PSK_WITH_AES_128_GCM_SHA256,
		},
		ExtendedMasterSecret: dtls.RequestExtendedMasterSecret,
	}
	switch {
	case cfg.NoCID:
	case cfg.CIDLength > 0:
		c.ConnectionIDGenerator = dtls.RandomCIDGenerator(cfg.CIDLength)
	default:
		c.ConnectionIDGenerator = dtls.OnlySendCIDGenerator()
	}
	return c
}

func describe(conn *dtls.Conn, target Target, cfg RequestConfig) (Session, error) {
	state, ok := conn.ConnectionState()
	if !ok {
		return Session{}, errors.New("the DTLS session ended during its handshake")
	}
	id, err := state.ExportKeyingMaterial("EXPERIMENTAL-weir-session", nil, 4)
	if err != nil {
		return Session{}, err
	}
	return Session{
		Authority: target.Authority(), ID: binary.BigEndian.Uint32(id), Suite: state.CipherSuiteID.String(), Identity: cfg.Identity,
		HasCID: !cfg.NoCID,
	}, nil
}
