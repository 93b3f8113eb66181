package turncat

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/pion/dtls/v3"
	"github.com/pion/dtls/v3/pkg/crypto/selfsign"
)

// Some TURN servers frame DTLS as a stream: they end a connection whose ChannelData is not padded to a multiple of four
// bytes (RFC 8656 section 12.5 allows padding there). The tunnel pads, whatever length the datagrams have.
func TestChannelDataIsPaddedOverDTLS(t *testing.T) {
	server := newStrictDTLS(t)
	r := startTunnel(t, Config{
		Listen: Endpoint{Kind: KindUDP, Host: "127.0.0.1"}, Server: Server{Host: "127.0.0.1", Port: server.port(), Transport: DTLS},
		Peer: Endpoint{Kind: KindUDP, Host: "192.0.2.7", Port: 5000}, Credentials: Static("u", "p"), Insecure: true,
	})
	conn := r.dial()
	for size := range 9 {
		exchange(t, conn, fmt.Sprint(size, " ", strings.Repeat("x", size)))
	}
	r.stop()
	if s := r.Stats(); s.Allocations != 1 || s.AllocationsLost != 0 {
		t.Errorf("%+v", s)
	}
}

// strictDTLS is a TURN server over DTLS that echoes ChannelData, and closes a connection on ChannelData without padding.
type strictDTLS struct {
	t        *testing.T
	listener net.Listener
}

func newStrictDTLS(t *testing.T) *strictDTLS {
	t.Helper()
	certificate, err := selfsign.GenerateSelfSigned()
	if err != nil {
		t.Fatal(err)
	}
	l, err := dtls.Listen("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}, &dtls.Config{Certificates: []tls.Certificate{certificate}}) //nolint:staticcheck // as dialDTLS
	if err != nil {
		t.Fatal(err)
	}
	s := &strictDTLS{t: t, listener: l}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go s.serve(conn)
		}
	}()
	return s
}

func (s *strictDTLS) port() uint16 { return s.listener.Addr().(*net.UDPAddr).AddrPort().Port() }

func (s *strictDTLS) serve(conn net.Conn) {
	defer conn.Close()
	answers := newFake(s.t, nil)
	buffer := make([]byte, 2000)
	for {
		n, err := conn.Read(buffer)
		if err != nil {
			return
		}
		out := bytes.Clone(buffer[:n])
		if out[0]>>6 != 1 {
			answers.sent = [][]byte{out}
			out, answers.sent = answers.answer(), nil
		} else {
			if len(out)%4 != 0 {
				return
			}
			data := append([]byte("echo:"), out[headerBytes:headerBytes+int(binary.BigEndian.Uint16(out[2:]))]...)
			binary.BigEndian.PutUint16(out[2:], uint16(len(data)))
			out = append(append(out[:headerBytes], data...), make([]byte, -len(data)&3)...)
		}
		if _, err := conn.Write(out); err != nil {
			return
		}
	}
}
