package lb

import (
	"fmt"
	"strconv"
	"strings"
)

// ByteMatch compares bytes of a transport header: header[Offset:Offset+Length] & Mask == Value, in network order.
type ByteMatch struct {
	Protocol    uint8
	Offset      int
	Length      int // 1, 2 or 4
	Mask, Value uint32
}

// headerBytes is the length of a transport header without options: what ByteMatch may look at.
func headerBytes(protocol uint8) int {
	switch protocol {
	case TCP:
		return 20
	case UDP:
		return 8
	default:
		return 12
	}
}

// UnmarshalText reads tcp[13:1] & 0x02 = 0x02, as nfqlb writes it: protocol, offset and length (1, 2 or 4 bytes) in the
// transport header, a mask that may be left out, and the value; numbers are decimal or 0x hexadecimal.
func (m *ByteMatch) UnmarshalText(text []byte) error {
	const form = "write it as tcp[13:1] & 0x02 = 0x02"
	left, value, ok := strings.Cut(string(text), "=")
	if !ok {
		return fmt.Errorf("no comparison %q; %s", text, form)
	}
	place, mask, masked := strings.Cut(left, "&")
	protocol, place, ok := strings.Cut(strings.TrimSpace(place), "[")
	inner, closed := strings.CutSuffix(place, "]")
	offset, length, both := strings.Cut(inner, ":")
	if !ok || !closed || !both {
		return fmt.Errorf("no header position in %q; %s", text, form)
	}
	var next ByteMatch
	if err := (*Protocol)(&next.Protocol).UnmarshalText([]byte(protocol)); err != nil {
		return err
	}
	whole := headerBytes(next.Protocol)
	var err error
	if next.Offset, err = strconv.Atoi(offset); err != nil || next.Offset < 0 {
		return fmt.Errorf("no offset %q; %s", offset, form)
	}
	if next.Length, err = strconv.Atoi(length); err != nil || next.Length != 1 && next.Length != 2 && next.Length != 4 {
		return fmt.Errorf("no length %q; write 1, 2 or 4 bytes", length)
	}
	if next.Offset > whole-next.Length {
		return fmt.Errorf("%d bytes at %d are beyond the %s header; its first %d bytes can be compared", next.Length, next.Offset, protocol, whole)
	}
	bits := 8 * next.Length
	next.Mask = uint32(1<<bits - 1)
	if masked {
		if next.Mask, err = parseBytes(mask, bits); err != nil {
			return err
		}
	}
	if next.Value, err = parseBytes(value, bits); err != nil {
		return err
	}
	if next.Mask == 0 {
		return fmt.Errorf("the mask of %q leaves nothing to compare; remove the match", text)
	}
	if next.Value&^next.Mask != 0 {
		return fmt.Errorf("the value of %q has bits that the mask hides, so nothing can match; write %#x, or widen the mask", text, next.Value&next.Mask)
	}
	*m = next
	return nil
}

// parseBytes reads a number of so many bits.
func parseBytes(text string, bits int) (uint32, error) {
	text = strings.TrimSpace(text)
	digits, base := text, 10
	if hex, ok := strings.CutPrefix(text, "0x"); ok {
		digits, base = hex, 16
	}
	n, err := strconv.ParseUint(digits, base, bits)
	if err != nil {
		return 0, fmt.Errorf("no number %q of %d bits; write it as 2 or 0x02", text, bits)
	}
	return uint32(n), nil
}

// String writes the match as UnmarshalText reads it.
func (m ByteMatch) String() string {
	return fmt.Sprintf("%s[%d:%d] & %#x = %#x", Protocol(m.Protocol), m.Offset, m.Length, m.Mask, m.Value)
}

// MarshalText is String, for JSON.
func (m ByteMatch) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// value returns the compared bytes of a header, and whether it has them.
func (m *ByteMatch) value(header []byte) (v uint32, ok bool) {
	if len(header) < m.Offset+m.Length {
		return 0, false
	}
	for _, b := range header[m.Offset : m.Offset+m.Length] {
		v = v<<8 | uint32(b)
	}
	return v & m.Mask, true
}

// place returns m without the values that it compares with. Rules that compare bytes at the same position share an index.
func (m ByteMatch) place() ByteMatch {
	m.Value = 0
	return m
}
