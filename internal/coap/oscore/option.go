package oscore

// Option is the value of the OSCORE option (RFC 8613 section 6.1). Its slices alias the message.
type Option struct {
	PIV        []byte // Partial IV, 0 to 5 bytes; empty: none
	KID        []byte
	KIDContext []byte
	HasKID     bool
	HasContext bool
}

// Bits of the first byte of the option.
const (
	flagKID     = 0x08
	flagContext = 0x10
	maskPIV     = 0x07
	reserved    = 0xe0
)

// maxOption is the longest value that a Codec writes, in bytes.
const maxOption = 1 + maxPIV + 1 + MaxIDContext + MaxID

// ParseOption reads the value of an OSCORE option. ok is false where it must be answered with 4.02: a reserved bit or length, a field
// that is cut off, bytes behind the end, or a value of zeros that should be empty.
func ParseOption(value []byte) (o Option, ok bool) {
	if len(value) == 0 {
		return o, true
	}
	flags, rest := value[0], value[1:]
	n := int(flags & maskPIV)
	if flags == 0 || flags&reserved != 0 || n > maxPIV || n > len(rest) {
		return Option{}, false
	}
	o.PIV, rest = rest[:n], rest[n:]
	if flags&flagContext != 0 {
		if len(rest) == 0 || int(rest[0]) >= len(rest) {
			return Option{}, false
		}
		n := int(rest[0])
		o.KIDContext, rest, o.HasContext = rest[1:1+n], rest[1+n:], true
	}
	if flags&flagKID != 0 {
		o.KID, o.HasKID = rest, true
		return o, true
	}
	return o, len(rest) == 0
}

// append appends the value. KID and KIDContext are not longer than MaxID and MaxIDContext.
func (o *Option) append(dst []byte) []byte {
	if len(o.PIV) == 0 && !o.HasKID && !o.HasContext {
		return dst
	}
	flags := byte(len(o.PIV))
	if o.HasKID {
		flags |= flagKID
	}
	if o.HasContext {
		flags |= flagContext
	}
	dst = append(append(dst, flags), o.PIV...)
	if o.HasContext {
		dst = append(append(dst, byte(len(o.KIDContext))), o.KIDContext...)
	}
	return append(dst, o.KID...)
}

// appendPIV appends a sequence number in the fewest bytes, at least one.
func appendPIV(dst []byte, sequence uint64) []byte {
	for shift := 8 * (maxPIV - 1); shift > 0; shift -= 8 {
		if sequence>>shift != 0 {
			dst = append(dst, byte(sequence>>shift))
		}
	}
	return append(dst, byte(sequence))
}

// sequenceOf is the number of a Partial IV.
func sequenceOf(piv []byte) (sequence uint64) {
	for _, b := range piv {
		sequence = sequence<<8 | uint64(b)
	}
	return sequence
}
