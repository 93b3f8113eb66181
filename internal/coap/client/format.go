package client

import (
	"encoding/hex"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/dtls/handshake"
)

const ruler = "==============================================================="

// Print writes the exchange as the cf-client of the source document does: request, session, time, response.
func (x *Exchange) Print(w io.Writer) error {
	var b strings.Builder
	if err := x.printRequest(&b); err != nil {
		return err
	}
	x.Session.print(&b)
	if x.Unwanted {
		fmt.Fprintf(&b, "\nTime elapsed (ms): %d\nNo response, as the No-Response option requires.\n", x.Elapsed.Milliseconds())
	}
	if x.Response != nil {
		fmt.Fprintf(&b, "\nTime elapsed (ms): %d\n", x.Elapsed.Milliseconds())
		if err := x.printResponse(&b); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// print writes the session as the cf-client does; nothing without DTLS.
func (s *Session) print(b *strings.Builder) {
	if s.Suite == "" {
		return
	}
	name := "DTLS"
	if s.TLS {
		name = "TLS"
	}
	fmt.Fprintf(b, "\n>>> %s(%s,ID:%d)\n>>> %s\n", name, s.Authority, s.ID, s.Suite)
	switch s.Auth {
	case handshake.AuthPSK:
		fmt.Fprintf(b, ">>> PreSharedKey Identity [identity: %s]\n", Printable(s.Identity))
	case handshake.AuthX509:
		fmt.Fprintf(b, ">>> X509 Certificate Path [%s]\n", Printable(s.Identity))
	case handshake.AuthRawKey:
		fmt.Fprintf(b, ">>> RawPublicKey Identity [%s]\n", Printable(s.Identity))
	}
	if s.HasCID {
		fmt.Fprintf(b, ">>> read-cid : %s\n>>> write-cid: %s\n", s.ReadCID, s.WriteCID)
	}
	if s.Resumed {
		b.WriteString(">>> resumed\n")
	}
}

// Printable is text of a server, quoted where it would steer a terminal.
func Printable(text string) string {
	if utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsGraphic(r) }) {
		return text
	}
	return strconv.QuoteToASCII(text)
}

func (x *Exchange) printRequest(b *strings.Builder) error {
	var m message.Message
	if err := message.Parse(x.Request, &m); err != nil {
		return err
	}
	fmt.Fprintf(b, "==[ CoAP Request ]%s\n", ruler[:45])
	x.head(b, &m)
	fmt.Fprintf(b, "Method : 0.%02d - %s\n", m.Code.Detail(), m.Code.Name())
	fmt.Fprintf(b, "Options: %s\n", Options(&m))
	body(b, &m)
	return nil
}

// PrintResponse writes the response alone.
func (x *Exchange) PrintResponse(w io.Writer) error {
	var b strings.Builder
	if err := x.printResponse(&b); err != nil {
		return err
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (x *Exchange) printResponse(b *strings.Builder) error {
	var m message.Message
	if err := message.Parse(x.Response, &m); err != nil {
		return err
	}
	fmt.Fprintf(b, "==[ CoAP Response ]%s\n", ruler[:44])
	x.head(b, &m)
	fmt.Fprintf(b, "Status : %s - %s\n", m.Code, m.Code.Name())
	fmt.Fprintf(b, "Options: %s\n", Options(&m))
	fmt.Fprintf(b, "RTT    : %d ms\n", x.RTT.Milliseconds())
	body(b, &m)
	return nil
}

func (x *Exchange) head(b *strings.Builder, m *message.Message) {
	if x.Target.Stream { // there are no message ids and no types (RFC 8323 section 3.2)
		fmt.Fprintf(b, "Token  : %s\n", strings.ToUpper(hex.EncodeToString(m.Token)))
		return
	}
	fmt.Fprintf(b, "MID    : %d\nToken  : %s\nType   : %s\n", m.ID, strings.ToUpper(hex.EncodeToString(m.Token)), m.Type)
}

func body(b *strings.Builder, m *message.Message) {
	fmt.Fprintf(b, "Payload: %d Bytes\n", len(m.Payload))
	if len(m.Payload) > 0 {
		fmt.Fprintf(b, "%s\n%s\n", strings.Repeat("-", len(ruler)), Rendered(m))
	}
	b.WriteString(ruler + "\n")
}

// PayloadText is the payload as text when it is printable, else its hex dump: what a server sends must not steer a terminal.
func PayloadText(m *message.Message) string { return shown(m.Payload) }

func shown(payload []byte) string {
	text := strings.ReplaceAll(string(payload), "\r\n", "\n")
	if utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool {
		return r != '\n' && r != '\t' && !unicode.IsGraphic(r)
	}) {
		return strings.TrimRight(text, "\n")
	}
	return strings.TrimRight(hex.Dump(payload), "\n")
}

// Options renders the options of a message as {"Name":value, ...}; a repeated one as a list.
func Options(m *message.Message) string {
	var b strings.Builder
	b.WriteByte('{')
	var last message.OptionID
	var values []string
	flush := func() {
		if len(values) == 0 {
			return
		}
		if b.Len() > 1 {
			b.WriteString(", ")
		}
		value := values[0]
		if len(values) > 1 {
			value = "[" + strings.Join(values, ",") + "]"
		}
		fmt.Fprintf(&b, "%q:%s", last, value)
		values = values[:0]
	}
	for options := m.Options(); options.Next(); {
		if options.ID() != last {
			flush()
			last = options.ID()
		}
		values = append(values, optionText(options.ID(), options.Value()))
	}
	flush()
	b.WriteByte('}')
	return b.String()
}

func optionText(id message.OptionID, value []byte) string {
	switch id {
	case message.URIHost, message.URIPath, message.URIQuery, message.LocationPath, message.LocationQuery, message.ProxyURI, message.ProxyScheme:
		return strconv.QuoteToGraphic(string(value))
	case message.ContentFormat, message.Accept:
		if n, ok := message.Uint(value); ok && n <= 0xffff {
			return strconv.Quote(message.Format(n).String())
		}
	case message.URIPort, message.MaxAge, message.Observe, message.Size1, message.Size2, message.HopLimit, message.NoResponse:
		if n, ok := message.Uint(value); ok {
			return strconv.FormatUint(uint64(n), 10)
		}
	case message.Block1, message.Block2:
		if n, ok := message.Uint(value); ok {
			return fmt.Sprintf(`"(szx=%d/%d, m=%t, num=%d)"`, n&7, 16<<(n&7), n&8 != 0, n>>4)
		}
	}
	return "0x" + hex.EncodeToString(value)
}
