package turncat

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/pion/logging"
	"github.com/pion/stun/v4"
	"github.com/pion/turn/v5"
)

// tcpSession is an allocation of RFC 6062 with its connection to the peer. pion/turn keeps the control connection alive.
type tcpSession struct {
	control net.Conn
	client  *turn.Client
	alloc   interface{ Close() error }
	data    net.Conn
}

func (s *tcpSession) close() {
	if s.data != nil {
		_ = s.data.Close()
	}
	if s.alloc != nil {
		_ = s.alloc.Close() // Refresh with lifetime 0; the transport is reliable
	}
	if s.client != nil {
		s.client.Close()
	}
	_ = s.control.Close()
}

// openTCP allocates, lets the peer in and, with connect, connects to it (RFC 6062 section 4).
func (t *Tunnel) openTCP(ctx context.Context, connect bool) (_ *tcpSession, err error) {
	credentials, err := t.config.Credentials(time.Unix(0, t.now()))
	if err != nil {
		return nil, err
	}
	server := t.serverAddr()
	s := &tcpSession{}
	if s.control, err = t.config.dialServer(ctx, server); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = s.control.SetDeadline(time.Now()) })
	defer stop()
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	family := turn.RequestedAddressFamilyIPv4
	if t.peer.Addr().Is6() {
		family = turn.RequestedAddressFamilyIPv6
	}
	quiet := logging.NewDefaultLoggerFactory()
	quiet.DefaultLogLevel = logging.LogLevelDisabled
	s.client, err = turn.NewClient(&turn.ClientConfig{
		TURNServerAddr: server.String(), Username: credentials.User, Password: credentials.Password,
		Conn: turn.NewSTUNConn(s.control), RequestedAddressFamily: family, LoggerFactory: quiet,
	})
	if err != nil {
		return nil, fmt.Errorf("TURN client: %w", err)
	}
	if err := s.client.Listen(); err != nil {
		return nil, fmt.Errorf("TURN client: %w", err)
	}
	alloc, err := s.client.AllocateTCPWithContext(ctx)
	if err != nil {
		return nil, refusalOf(err, credentials.User)
	}
	s.alloc = alloc
	peer := net.TCPAddrFromAddrPort(t.peer)
	if err := s.client.CreatePermission(peer); err != nil {
		return nil, fmt.Errorf("the TURN server's permission for %v: %w", t.peer, err)
	}
	if !connect {
		return s, nil
	}
	id, err := alloc.Connect(peer)
	if err != nil {
		return nil, fmt.Errorf("the TURN server's connection to %v: %w", t.peer, err)
	}
	if s.data, err = t.config.dialServer(ctx, server); err != nil {
		return nil, err
	}
	if err := bindConnection(s.data, uint32(id), credentials); err != nil {
		return nil, fmt.Errorf("connection %d to %v: %w", id, t.peer, err)
	}
	return s, nil
}

// refusalOf makes a Refusal of what pion/turn reports.
func refusalOf(err error, user string) error {
	var refused *stun.TurnError
	if !errors.As(err, &refused) {
		return err
	}
	return &Refusal{
		Request: "Allocate", Code: int(refused.ErrorCodeAttr.Code), Reason: printable(refused.ErrorCodeAttr.Reason, 80), User: user,
	}
}

// bindConnection makes conn the data connection of an id (RFC 6062 section 4.3). The nonce of the control connection need not
// be good here, so the server is asked for one.
func bindConnection(conn net.Conn, id uint32, c Credentials) error {
	if err := conn.SetDeadline(time.Now().Add(dialPatience)); err != nil {
		return err
	}
	var key, realm, nonce []byte
	for range maxTurns {
		m := stun.New()
		m.Type = stun.NewType(stun.MethodConnectionBind, stun.ClassRequest)
		if err := m.NewTransactionID(); err != nil {
			return err
		}
		m.WriteHeader()
		m.Add(stun.AttrConnectionID, binary.BigEndian.AppendUint32(nil, id))
		if key != nil {
			m.Add(stun.AttrUsername, []byte(c.User))
			m.Add(stun.AttrRealm, realm)
			m.Add(stun.AttrNonce, nonce)
			if err := stun.MessageIntegrity(key).AddTo(m); err != nil {
				return err
			}
		}
		if _, err := conn.Write(m.Raw); err != nil {
			return err
		}
		answer, err := readMessage(conn)
		if err != nil {
			return err
		}
		if answer.TransactionID != m.TransactionID {
			return errNotTURN
		}
		if answer.Type.Class == stun.ClassSuccessResponse {
			return conn.SetDeadline(time.Time{})
		}
		r := parseRefusal(answer)
		realm, _ = answer.Get(stun.AttrRealm)
		nonce, _ = answer.Get(stun.AttrNonce)
		if r.Code != 401 && r.Code != 438 || len(nonce) == 0 || len(realm) == 0 {
			return r
		}
		key = stun.NewLongTermIntegrity(c.User, string(realm), c.Password)
	}
	return errors.New("the TURN server asks for credentials over and over")
}

// readMessage reads one STUN message and not a byte more: what follows belongs to the user.
func readMessage(r io.Reader) (*stun.Message, error) {
	raw := make([]byte, stunHeader)
	if _, err := io.ReadFull(r, raw); err != nil {
		return nil, err
	}
	if !stun.IsMessage(raw) {
		return nil, errNotTURN
	}
	raw = append(raw, make([]byte, binary.BigEndian.Uint16(raw[2:]))...)
	if _, err := io.ReadFull(r, raw[stunHeader:]); err != nil {
		return nil, err
	}
	m := &stun.Message{Raw: raw}
	return m, m.Decode()
}

func (t *Tunnel) checkTCP() error {
	s, err := t.openTCP(t.ctx, false)
	if t.ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", t.config.Server, err)
	}
	s.close()
	return nil
}

// serveTCP carries one client's bytes to the TCP peer and back. Where the server goes away, so does the client's connection: bytes of
// a stream cannot be lost in between.
func (t *Tunnel) serveTCP(local *stream) {
	defer t.leave()
	defer local.end()
	if t.config.Listen.Kind == KindStdio {
		defer t.finish()
	}
	s, err := t.openTCP(t.ctx, true)
	if err != nil {
		if t.ctx.Err() == nil {
			t.tcp.failures.Add(1)
			t.warn("no connection through the TURN server", "error", err)
		}
		return
	}
	defer s.close()
	t.tcp.allocations.Add(1)
	t.tcp.sessions.Add(1)
	defer t.tcp.sessions.Add(-1)
	stop := context.AfterFunc(t.ctx, func() {
		_ = s.data.SetDeadline(time.Now())
		local.end()
	})
	defer stop()
	up := func() {
		t.copyBytes(s.data, local.in, &t.tcp.upPackets, &t.tcp.upBytes)
		closeWrite(s.data)
	}
	if t.config.Listen.Kind == KindStdio {
		go up() // a read of a terminal cannot be ended
	} else {
		t.beside.Go(up)
	}
	t.copyBytes(local.out, s.data, &t.tcp.downPackets, &t.tcp.downBytes)
}

type adder interface{ Add(uint64) uint64 }

func (t *Tunnel) copyBytes(to io.Writer, from io.Reader, packets, bytes adder) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
			packets.Add(1)
			bytes.Add(uint64(n))
		}
		if err != nil {
			return
		}
	}
}

// closeWrite passes the end of the input on, where the transport can say so.
func closeWrite(conn net.Conn) {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}
