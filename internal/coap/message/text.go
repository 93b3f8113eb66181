package message

import (
	"encoding/hex"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Block width of Describe, as the source document's client prints.
const textWidth = 63

// Describe renders a message as the block that Californium's clients print, without a trailing newline.
// rtt is the round-trip time of a response; negative leaves the line out. Not for hot paths.
func Describe(m *Message, rtt time.Duration) string {
	var b strings.Builder
	title := "==[ CoAP Request ]"
	if !m.Code.IsRequest() {
		title = "==[ CoAP Response ]"
	}
	b.WriteString(title + strings.Repeat("=", textWidth-len(title)) + "\n")
	line := func(name, value string) { b.WriteString(name + strings.Repeat(" ", 7-len(name)) + ": " + value + "\n") }
	line("MID", strconv.Itoa(int(m.ID)))
	line("Token", strings.ToUpper(hex.EncodeToString(m.Token)))
	line("Type", m.Type.String())
	if m.Code.IsRequest() {
		line("Method", m.Code.String()+" - "+m.Code.Name())
	} else {
		line("Status", m.Code.String()+" - "+m.Code.Name())
	}
	line("Options", DescribeOptions(m))
	if rtt >= 0 {
		line("RTT", strconv.FormatInt(rtt.Milliseconds(), 10)+" ms")
	}
	line("Payload", strconv.Itoa(len(m.Payload))+" Bytes")
	if len(m.Payload) > 0 {
		b.WriteString(strings.Repeat("-", textWidth) + "\n" + DescribePayload(m) + "\n")
	}
	b.WriteString(strings.Repeat("=", textWidth))
	return b.String()
}

// DescribeOptions renders the options as {"Uri-Path":"context"}, repeated ones as a list.
func DescribeOptions(m *Message) string {
	var b strings.Builder
	b.WriteByte('{')
	options := m.Options()
	for more := options.Next(); more; {
		id := options.ID()
		values := []string{describeOption(id, options.Value())}
		for more = options.Next(); more && options.ID() == id; more = options.Next() {
			values = append(values, describeOption(id, options.Value()))
		}
		if b.Len() > 1 {
			b.WriteString(", ")
		}
		b.WriteString(strconv.Quote(id.String()) + ":")
		if len(values) == 1 {
			b.WriteString(values[0])
		} else {
			b.WriteString("[" + strings.Join(values, ", ") + "]")
		}
	}
	b.WriteByte('}')
	return b.String()
}

func describeOption(id OptionID, value []byte) string {
	r, known := ruleOf(id)
	n, isUint := Uint(value)
	switch {
	case !known:
	case id == ContentFormat || id == Accept:
		if isUint && n <= 0xffff {
			return strconv.Quote(Format(n).String())
		}
	case id == Block1 || id == Block2:
		if isUint {
			return strconv.Quote("num=" + strconv.Itoa(int(n>>4)) + ", more=" + strconv.Itoa(int(n>>3&1)) + ", size=" + strconv.Itoa(16<<(n&7)))
		}
	case r.format == formatUint && isUint:
		return strconv.FormatUint(uint64(n), 10)
	case r.format == formatString && utf8.Valid(value):
		return strconv.Quote(string(value))
	case r.format == formatEmpty:
		return `""`
	}
	return "0x" + hex.EncodeToString(value)
}

// DescribePayload renders the payload as text when it is printable text, else as hexadecimal, 32 bytes a line. Control
// characters never reach a terminal.
func DescribePayload(m *Message) string {
	if printable(m.Payload) {
		return string(m.Payload)
	}
	var b strings.Builder
	for start := 0; start < len(m.Payload); start += 32 {
		if start > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(hex.EncodeToString(m.Payload[start:min(start+32, len(m.Payload))]))
	}
	return b.String()
}

func printable(p []byte) bool {
	if !utf8.Valid(p) {
		return false
	}
	for _, c := range string(p) {
		if c != '\n' && c != '\t' && c != '\r' && !strconv.IsPrint(c) {
			return false
		}
	}
	return true
}
