package client

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/weir-lb/weir/internal/coap/message"
)

// Formats of sensor measurements (RFC 8428 section 12.3).
const (
	formatSenMLJSON message.Format = 110
	formatSenMLCBOR message.Format = 112
)

// Rendered is the payload for people: JSON indented, CBOR in diagnostic notation, links one a line, else as PayloadText. What does
// not parse as its format says is shown as PayloadText too.
func Rendered(m *message.Message) string {
	format, ok := m.Uint(message.ContentFormat)
	if !ok {
		return PayloadText(m)
	}
	switch message.Format(format) {
	case message.JSON, formatSenMLJSON:
		var out bytes.Buffer
		if json.Indent(&out, m.Payload, "", "  ") == nil {
			return shown(out.Bytes())
		}
	case message.CBOR, formatSenMLCBOR:
		if text, ok := Diagnostic(m.Payload); ok {
			return text
		}
	case message.LinkFormat:
		if links, err := ParseLinks(string(m.Payload)); err == nil && len(links) > 0 {
			lines := make([]string, len(links))
			for i, l := range links {
				lines[i] = l.String()
			}
			return shown([]byte(strings.Join(lines, "\n")))
		}
	}
	return PayloadText(m)
}
