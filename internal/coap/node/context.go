package node

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"net/netip"
	"strconv"
	"strings"

	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/coap/resource"
	"github.com/weir-lb/weir/internal/dtls/engine"
)

// field is one entry of a context; value is a string, an int or a bool.
type field struct {
	name  string
	value any
}

// viaRouter is the value Californium gives to "via" for a record that came through another node.
const viaRouter = "dtls-cid-router"

// contextOf lists the server's information about a peer, in Californium's order. extended adds the fields of its release 3.
func contextOf(info *engine.Info, nodeID *uint32, version string, extended bool) []field {
	fields := []field{{"ip", plainIP(info.Addr)}, {"port", int(info.Addr.Port())}}
	if nodeID != nil {
		fields = append(fields, field{"node-id", int(*nodeID)})
	}
	if info.Identity != "" {
		fields = append(fields, field{"peer", info.Identity})
	}
	if info.Suite != "" {
		fields = append(fields, field{"cipher-suite", info.Suite})
	}
	if info.HasCID {
		fields = append(fields,
			field{"read-cid", strings.ToUpper(hex.EncodeToString(info.ReadCID))},
			field{"write-cid", strings.ToUpper(hex.EncodeToString(info.WriteCID))})
	}
	if info.Router.IsValid() {
		fields = append(fields, field{"via", viaRouter})
	}
	if extended && info.Secure {
		fields = append(fields,
			field{"secure-renegotiation", info.SecureRenegotiation},
			field{"ext-master-secret", info.ExtendedMasterSecret})
	}
	if extended && info.PrevAddr.IsValid() {
		fields = append(fields, field{"prev-ip", plainIP(info.PrevAddr)}, field{"prev-port", int(info.PrevAddr.Port())})
	}
	return append(fields, field{"server", "Weir " + version})
}

func plainIP(a netip.AddrPort) string { return a.Addr().Unmap().String() }

func (l *listener) serveContext(r *resource.Request)   { l.context(r, false) }
func (l *listener) serveMyContext(r *resource.Request) { l.context(r, true) }

func (l *listener) context(r *resource.Request, extended bool) {
	format, ok := r.Accepts(message.Text, message.JSON, message.XML, message.CBOR)
	if !ok || !r.NoQuery() {
		return
	}
	info := owner(r.Session).info()
	fields := contextOf(&info, l.nodeID, l.cfg.Version, extended)
	if c := oscoreOf(r); c != nil {
		fields = append(fields, field{"oscore", c.Name()})
	}
	r.Answer(message.Content, format, render(format, "context", fields))
}

func serveMyIP(r *resource.Request) {
	format, ok := r.Accepts(message.Text, message.JSON, message.XML)
	if !ok || !r.NoQuery() {
		return
	}
	addr := owner(r.Session).addr()
	addr = netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())
	if format == message.Text {
		r.Answer(message.Content, format, []byte(addr.String()))
		return
	}
	fields := []field{{"ip", addr.Addr().String()}, {"port", int(addr.Port())}}
	r.Answer(message.Content, format, render(format, "ip", fields))
}

// render writes fields in one of the formats; element names the XML element.
func render(format message.Format, element string, fields []field) []byte {
	switch format {
	case message.JSON:
		return renderJSON(fields)
	case message.XML:
		return renderXML(element, fields)
	case message.CBOR:
		return renderCBOR(fields)
	}
	var b strings.Builder
	for i, f := range fields {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(f.name + ": " + textOf(f.value))
	}
	return []byte(b.String())
}

func textOf(value any) string {
	switch v := value.(type) {
	case int:
		return strconv.Itoa(v)
	case bool:
		return strconv.FormatBool(v)
	}
	text, _ := value.(string)
	return text
}

func renderJSON(fields []field) []byte {
	b := []byte{'{'}
	for i, f := range fields {
		if i > 0 {
			b = append(b, ',')
		}
		value, err := json.Marshal(f.value)
		if err != nil { // strings, ints and bools always encode
			value = []byte("null")
		}
		b = append(strconv.AppendQuote(b, f.name), ':')
		b = append(b, value...)
	}
	return append(b, '}')
}

func renderXML(element string, fields []field) []byte {
	var b strings.Builder
	b.WriteString("<" + element)
	for _, f := range fields {
		b.WriteString(" " + f.name + `="`)
		_ = xml.EscapeText(&b, []byte(textOf(f.value))) // a strings.Builder does not fail
		b.WriteByte('"')
	}
	b.WriteString(" />")
	return []byte(b.String())
}

// renderCBOR writes a map of text keys (RFC 8949).
func renderCBOR(fields []field) []byte {
	b := cborHead(nil, 5, uint64(len(fields)))
	for _, f := range fields {
		b = append(cborHead(b, 3, uint64(len(f.name))), f.name...)
		switch v := f.value.(type) {
		case int:
			b = cborHead(b, 0, uint64(v))
		case bool:
			if v {
				b = append(b, 0xf5)
			} else {
				b = append(b, 0xf4)
			}
		default:
			b = cborText(b, textOf(v))
		}
	}
	return b
}

func cborHead(b []byte, major byte, n uint64) []byte {
	switch {
	case n < 24:
		return append(b, major<<5|byte(n))
	case n < 1<<8:
		return append(b, major<<5|24, byte(n))
	case n < 1<<16:
		return append(b, major<<5|25, byte(n>>8), byte(n))
	}
	if n < 1<<32 {
		return append(b, major<<5|26, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
	}
	return binary.BigEndian.AppendUint64(append(b, major<<5|27), n)
}

// cborText appends a text string.
func cborText(b []byte, text string) []byte {
	text = strings.ToValidUTF8(text, "?")
	return append(cborHead(b, 3, uint64(len(text))), text...)
}
