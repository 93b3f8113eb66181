package stream

import (
	"fmt"

	"github.com/weir-lb/weir/internal/coap/message"
)

// Codes of signalling messages (RFC 8323 section 5.1).
const (
	CSM     message.Code = 7<<5 | 1
	Ping    message.Code = 7<<5 | 2
	Pong    message.Code = 7<<5 | 3
	Release message.Code = 7<<5 | 4
	Abort   message.Code = 7<<5 | 5
)

// Options of signalling messages; a number means something else in each message (RFC 8323 sections 5.3 to 5.6, RFC 8974).
const (
	maxMessageSize     message.OptionID = 2 // CSM
	blockWiseTransfer  message.OptionID = 4 // CSM
	extendedToken      message.OptionID = 6 // CSM
	custody            message.OptionID = 2 // Ping, Pong
	alternativeAddress message.OptionID = 2 // Release
	holdOff            message.OptionID = 4 // Release
	badCSMOption       message.OptionID = 2 // Abort
)

// baseMessage is the Max-Message-Size of a peer that has not announced another one (RFC 8323 section 5.3.1).
const baseMessage = 1152

// Settings are what one end of a connection announces in its CSM. The zero value is the base values.
type Settings struct {
	MaxMessageSize int  // bytes of a message that it accepts; base value 1152
	BlockWise      bool // block-wise transfer; with a MaxMessageSize above 1152 also BERT (RFC 8323 section 6)
	MaxToken       int  // bytes; base value 8 (RFC 8974 section 2.2.2)
}

// Announced are the settings of Weir's own decoder.
func Announced() Settings {
	return Settings{MaxMessageSize: MaxMessage, BlockWise: true, MaxToken: message.MaxToken}
}

func (s Settings) withBase() Settings {
	if s.MaxMessageSize == 0 {
		s.MaxMessageSize = baseMessage
	}
	if s.MaxToken == 0 {
		s.MaxToken = 8
	}
	return s
}

// BERT returns how many bytes of blocks one message to this end may carry, a multiple of 1024: 0 if it does not know BERT. room is
// what header, token and options take.
func (s Settings) BERT(room int) int {
	if s = s.withBase(); !s.BlockWise || s.MaxMessageSize <= baseMessage {
		return 0
	}
	return max(0, s.MaxMessageSize-room) &^ 1023
}

// Event is what a message meant for the connection.
type Event uint8

// Events of Session.Receive.
const (
	Ignored  Event = iota // an empty message
	Plain                 // a request or a response: the caller handles it
	Updated               // a CSM: Session.Peer changed
	Pinged                // a Ping: the Pong is in out
	Ponged                // a Pong: the caller compares its token
	Released              // the peer asks to end the connection: send no more requests, answer what is under way, then close
	Aborted               // the peer ends the connection; Session.Reason says why
	Failed                // the peer broke the protocol; out holds the Abort. Send it, then close
)

// Session is the state of one connection, at either end. Not for concurrent use.
type Session struct {
	Peer   Settings // of the newest CSM
	Reason string   // of Aborted and Failed, printable

	begun bool
}

// Begun reports whether the peer has sent its CSM, or a request or response instead.
func (s *Session) Begun() bool { return s.begun }

// AppendCSM appends the frame of the first message of a connection.
func AppendCSM(dst []byte, own Settings) []byte {
	own = own.withBase()
	var buf [32]byte
	var b message.Builder
	b.Reset(buf[:0], message.Non, CSM, 0, nil)
	b.Uint(maxMessageSize, uint32(own.MaxMessageSize))
	if own.BlockWise {
		b.Option(blockWiseTransfer, nil)
	}
	if own.MaxToken > 8 {
		b.Uint(extendedToken, uint32(own.MaxToken))
	}
	return appendBuilt(dst, &b)
}

// AppendPing appends the frame of a Ping. With withCustody the Pong says that everything received before was processed (RFC 8323
// section 5.4.1).
func AppendPing(dst, token []byte, withCustody bool) []byte {
	return appendSignal(dst, Ping, token, withCustody)
}

// AppendRelease appends the frame of a Release (RFC 8323 section 5.5).
func AppendRelease(dst []byte) []byte { return appendSignal(dst, Release, nil, false) }

// AppendAbort appends the frame of an Abort with a diagnostic text (RFC 8323 section 5.6).
func AppendAbort(dst []byte, text string) []byte { return appendAbort(dst, 0, text) }

func appendAbort(dst []byte, option message.OptionID, text string) []byte {
	var buf [160]byte
	var b message.Builder
	b.Reset(buf[:0], message.Non, Abort, 0, nil)
	if option > 0 {
		b.Uint(badCSMOption, uint32(option))
	}
	b.Payload([]byte(text[:min(len(text), 128)]))
	return appendBuilt(dst, &b)
}

func appendSignal(dst []byte, code message.Code, token []byte, withCustody bool) []byte {
	var buf [16 + message.MaxToken]byte
	var b message.Builder
	b.Reset(buf[:0], message.Non, code, 0, token)
	if withCustody {
		b.Option(custody, nil)
	}
	return appendBuilt(dst, &b)
}

// appendBuilt appends the frame of what was built into a large enough array.
func appendBuilt(dst []byte, b *message.Builder) []byte {
	datagram, err := b.Bytes()
	if err != nil {
		return dst
	}
	dst, _ = Append(dst, datagram) // it is a message: Builder wrote it
	return dst
}

// Receive handles one message and appends what is to be sent in return to out. A token longer than message.MaxToken cannot come
// here. The first message of the peer must be a CSM (RFC 8323 section 5.3). A peer that sends requests or responses without one, as
// Californium does, which knows no signalling messages, is served with the base values.
func (s *Session) Receive(m *message.Message, out []byte) (Event, []byte) {
	if !s.begun && m.Code != CSM {
		if isSignal := m.Code>>5 == CSM>>5; isSignal {
			return s.Fail(out, "the first message must be a CSM")
		}
		s.Peer, s.begun = s.Peer.withBase(), m.Code != message.Empty
	}
	switch m.Code {
	case message.Empty:
		return Ignored, out
	case CSM:
		return s.settings(m, out)
	case Ping:
		if id, bad := unknown(m, custody); bad {
			return s.Fail(out, fmt.Sprintf("option %d of a Ping is critical and not known here", id))
		}
		_, withCustody := m.Option(custody)
		return Pinged, appendSignal(out, Pong, m.Token, withCustody)
	case Pong:
		return Ponged, out
	case Release:
		if id, bad := unknown(m, alternativeAddress, holdOff); bad {
			return s.Fail(out, fmt.Sprintf("option %d of a Release is critical and not known here", id))
		}
		return Released, out
	case Abort:
		s.Reason = printable(m.Payload)
		if id, ok := m.Uint(badCSMOption); ok {
			s.Reason = fmt.Sprintf("option %d of the CSM was refused. %s", id, s.Reason)
		}
		return Aborted, out
	}
	if m.Code.IsRequest() || m.Code.IsResponse() {
		return Plain, out
	}
	return s.Fail(out, "unknown code "+m.Code.String())
}

// Fail appends an Abort to out; the connection ends after it is sent.
func (s *Session) Fail(out []byte, reason string) (Event, []byte) {
	s.Reason = reason
	return Failed, AppendAbort(out, reason)
}

// settings takes a CSM: options that it does not name keep their value (RFC 8323 section 5.3).
func (s *Session) settings(m *message.Message, out []byte) (Event, []byte) {
	peer := s.Peer.withBase()
	for options := m.Options(); options.Next(); {
		value, ok := message.Uint(options.Value())
		switch id := options.ID(); {
		case id == maxMessageSize && ok && value > 0:
			peer.MaxMessageSize = int(min(value, 1<<30))
		case id == blockWiseTransfer && len(options.Value()) == 0:
			peer.BlockWise = true
		case id == extendedToken && ok:
			peer.MaxToken = int(min(max(value, 8), 65804))
		case id.Critical() || id == maxMessageSize || id == blockWiseTransfer || id == extendedToken:
			s.Reason = fmt.Sprintf("option %d of the CSM is critical and not known here, or its value is wrong", id)
			return Failed, appendAbort(out, id, s.Reason)
		}
	}
	s.Peer, s.begun = peer, true
	return Updated, out
}

// unknown returns the first critical option that is none of the known ones.
func unknown(m *message.Message, known ...message.OptionID) (message.OptionID, bool) {
	for options := m.Options(); options.Next(); {
		id := options.ID()
		if !id.Critical() {
			continue
		}
		found := false
		for _, k := range known {
			found = found || k == id
		}
		if !found {
			return id, true
		}
	}
	return 0, false
}

// printable shortens a peer's diagnostic text and replaces what is not printable ASCII.
func printable(text []byte) string {
	out := make([]byte, 0, 128)
	for _, c := range text[:min(len(text), 128)] {
		if c < ' ' || c > '~' {
			c = '?'
		}
		out = append(out, c)
	}
	return string(out)
}
