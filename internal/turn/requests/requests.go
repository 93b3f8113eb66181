// Package requests has the messages of a TURN client: it builds requests, signs them and reads their responses
// (RFC 8489, RFC 8656). It has no sockets and no clock; when a request is sent again is the caller's decision.
//
//	auth := requests.Auth{}
//	auth.SetUser("user", "password")
//	m := stun.New()
//	err := requests.Request{Method: stun.MethodAllocate, Lifetime: 10 * time.Minute}.Build(m, &auth)
//	… send m.Raw …
//	response, outcome := requests.Response(received, m, &auth)
//	// Refused with the code 401 or 438, and auth.Challenge(response): build it again
//
// The types of pion/stun are those of its users inside turn.
package requests

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/pion/stun/v4"
)

// maxText is the longest realm or nonce in bytes that is accepted (RFC 8489 section 14.9 and 14.10).
const maxText = 763

// Auth is a user of the long-term credential mechanism (RFC 8489 section 9.2). The zero Auth has no user. Not for
// concurrent use.
type Auth struct {
	user, password string
	realm, nonce   []byte
	key            stun.MessageIntegrity // nil before the first challenge
}

// SetUser sets the user of the next requests.
func (a *Auth) SetUser(user, password string) {
	a.user, a.password = user, password
	if a.key != nil {
		a.setKey()
	}
}

func (a *Auth) setKey() { a.key = stun.NewLongTermIntegrity(a.user, string(a.realm), a.password) }

// Challenged reports whether requests are signed: the server has named its realm and a nonce.
func (a *Auth) Challenged() bool { return a.key != nil }

// Challenge takes realm and nonce of an error response 401 or 438. It returns false if the response has none.
func (a *Auth) Challenge(m *stun.Message) bool {
	nonce, err := m.Get(stun.AttrNonce)
	if err != nil || len(nonce) == 0 || len(nonce) > maxText {
		return false
	}
	realm, err := m.Get(stun.AttrRealm)
	if err != nil {
		realm = a.realm
	}
	if len(realm) == 0 || len(realm) > maxText {
		return false
	}
	a.nonce = bytes.Clone(nonce)
	if a.key == nil || !bytes.Equal(realm, a.realm) {
		a.realm = bytes.Clone(realm)
		a.setKey()
	}
	return true
}

// Request is an Allocate, Refresh or ChannelBind request.
type Request struct {
	Method stun.Method
	// Peer is the peer of a ChannelBind. An Allocate with an IPv6 peer requests an IPv6 relay address.
	Peer netip.AddrPort
	// Channel is the channel number of a ChannelBind.
	Channel uint16
	// Lifetime, in whole seconds, is of an Allocate (0: the server's default) or a Refresh (0 ends the allocation).
	Lifetime time.Duration
}

// Build writes the request with a new transaction id into m. With auth it is signed, once the server has sent a
// challenge, and ends with a FINGERPRINT.
func (r Request) Build(m *stun.Message, auth *Auth) error {
	m.Reset()
	m.Type = stun.NewType(r.Method, stun.ClassRequest)
	_, _ = rand.Read(m.TransactionID[:]) // never fails
	m.WriteHeader()
	switch r.Method {
	case stun.MethodAllocate:
		m.Add(stun.AttrRequestedTransport, []byte{17, 0, 0, 0}) // UDP
		if r.Peer.Addr().Unmap().Is6() {
			m.Add(stun.AttrRequestedAddressFamily, []byte{2, 0, 0, 0})
		}
	case stun.MethodChannelBind:
		m.Add(stun.AttrChannelNumber, []byte{byte(r.Channel >> 8), byte(r.Channel), 0, 0})
		if err := AddAddress(m, stun.AttrXORPeerAddress, r.Peer); err != nil {
			return fmt.Errorf("peer address %v: %w", r.Peer, err)
		}
	}
	if r.Method == stun.MethodRefresh || r.Method == stun.MethodAllocate && r.Lifetime > 0 {
		m.Add(stun.AttrLifetime, binary.BigEndian.AppendUint32(nil, uint32(r.Lifetime/time.Second)))
	}
	if auth == nil {
		return nil
	}
	if auth.key != nil {
		m.Add(stun.AttrUsername, []byte(auth.user))
		m.Add(stun.AttrRealm, auth.realm)
		m.Add(stun.AttrNonce, auth.nonce)
		if err := auth.key.AddTo(m); err != nil {
			return fmt.Errorf("sign the request: %w", err)
		}
	}
	return stun.Fingerprint.AddTo(m)
}

// Outcome says what a message means for a request.
type Outcome uint8

const (
	Unrelated Outcome = iota // no response to the request
	Granted                  // a success response, signed if the request was signed
	Forged                   // a success response with a wrong signature: the sender does not know the password
	Refused                  // an error response
)

// Response reads a message as the response to request. The message is valid while raw is.
func Response(raw []byte, request *stun.Message, auth *Auth) (*stun.Message, Outcome) {
	if !stun.IsMessage(raw) {
		return nil, Unrelated
	}
	m := &stun.Message{Raw: raw}
	if m.Decode() != nil || m.TransactionID != request.TransactionID || m.Type.Method != request.Type.Method {
		return nil, Unrelated
	}
	switch m.Type.Class {
	case stun.ClassSuccessResponse:
		if auth.key != nil && auth.key.Check(m) != nil {
			return m, Forged
		}
		return m, Granted
	case stun.ClassErrorResponse:
		return m, Refused
	}
	return nil, Unrelated
}

// Grant is what a success response to an Allocate or a Refresh contains.
type Grant struct {
	Relay    netip.AddrPort // of an Allocate
	Lifetime time.Duration
}

// ParseGrant reads a success response to an Allocate or a Refresh.
func ParseGrant(m *stun.Message) (g Grant, err error) {
	if b, err := m.Get(stun.AttrLifetime); err == nil && len(b) == 4 {
		g.Lifetime = time.Duration(binary.BigEndian.Uint32(b)) * time.Second
	}
	if m.Type.Method != stun.MethodAllocate {
		return g, nil
	}
	if g.Relay, err = Address(m, stun.AttrXORRelayedAddress); err != nil {
		return g, fmt.Errorf("the answer to Allocate names no relay address: %w", err)
	}
	if g.Lifetime <= 0 {
		return g, errors.New("the answer to Allocate names no lifetime")
	}
	return g, nil
}

// ErrorCode reads the code of an error response and the server's text, of which at most 80 printable characters are
// returned. The code is 0 if there is none.
func ErrorCode(m *stun.Message) (code int, reason string) {
	var attribute stun.ErrorCodeAttribute
	if attribute.GetFrom(m) != nil {
		return 0, ""
	}
	return int(attribute.Code), Printable(attribute.Reason, 80)
}

// Address reads an address attribute that is encoded like XOR-MAPPED-ADDRESS.
func Address(m *stun.Message, attribute stun.AttrType) (netip.AddrPort, error) {
	var x stun.XORMappedAddress
	if err := x.GetFromAs(m, attribute); err != nil {
		return netip.AddrPort{}, err
	}
	ip, ok := netip.AddrFromSlice(x.IP)
	if !ok || x.Port < 0 || x.Port > 65535 {
		return netip.AddrPort{}, errors.New("not an address")
	}
	return netip.AddrPortFrom(ip.Unmap(), uint16(x.Port)), nil
}

// AddAddress adds an address attribute that is encoded like XOR-MAPPED-ADDRESS.
func AddAddress(m *stun.Message, attribute stun.AttrType, a netip.AddrPort) error {
	return stun.XORMappedAddress{IP: a.Addr().Unmap().AsSlice(), Port: int(a.Port())}.AddToAs(m, attribute)
}

// Printable returns at most limit bytes of a server's text, with control characters replaced, so that it is safe to
// print on a terminal.
func Printable(b []byte, limit int) string {
	out := make([]byte, 0, min(len(b), limit))
	for _, c := range b[:min(len(b), limit)] {
		if c < ' ' || c > '~' {
			c = '?'
		}
		out = append(out, c)
	}
	return string(out)
}
