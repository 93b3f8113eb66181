package client

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Bounds of a CBOR document to show: nesting, and bytes of text.
const (
	maxNesting    = 32
	maxDiagnostic = 4 << 20
)

// Diagnostic renders one CBOR item in diagnostic notation (RFC 8949 section 8). ok is false where the bytes are no well-formed item,
// nest too deeply or become too long.
func Diagnostic(item []byte) (text string, ok bool) {
	d := diagnostic{in: item}
	d.item(0)
	return d.out.String(), !d.bad && len(d.in) == 0
}

// diagnostic renders CBOR; after an error bad is set and nothing more is read.
type diagnostic struct {
	in  []byte
	out strings.Builder
	bad bool
}

const indefinite = 31

// head reads the initial byte of an item and its argument; info is its low five bits.
func (d *diagnostic) head() (major, info byte, argument uint64) {
	if len(d.in) == 0 || d.out.Len() > maxDiagnostic {
		d.bad = true
		return 0, 0, 0
	}
	major, info = d.in[0]>>5, d.in[0]&31
	d.in = d.in[1:]
	switch {
	case info < 24:
		return major, info, uint64(info)
	case info < 28:
		n := 1 << (info - 24)
		b := d.take(uint64(n))
		if d.bad {
			return 0, 0, 0
		}
		var wide [8]byte
		copy(wide[8-n:], b)
		return major, info, binary.BigEndian.Uint64(wide[:])
	case info == indefinite && major >= 2 && major != 6:
		return major, info, 0
	}
	d.bad = true
	return 0, 0, 0
}

func (d *diagnostic) take(n uint64) []byte {
	if d.bad || n > uint64(len(d.in)) {
		d.bad = true
		return nil
	}
	b := d.in[:n]
	d.in = d.in[n:]
	return b
}

func (d *diagnostic) item(depth int) {
	if depth > maxNesting {
		d.bad = true
	}
	major, info, n := d.head()
	if d.bad {
		return
	}
	switch major {
	case 0:
		d.out.WriteString(strconv.FormatUint(n, 10))
	case 1:
		if n == math.MaxUint64 {
			d.out.WriteString("-18446744073709551616")
			return
		}
		d.out.WriteString("-" + strconv.FormatUint(n+1, 10))
	case 2, 3:
		d.string(major, info, n)
	case 4:
		d.list("[", "]", info, n, func() { d.item(depth + 1) })
	case 5:
		d.list("{", "}", info, n, func() {
			d.item(depth + 1)
			d.out.WriteString(": ")
			d.item(depth + 1)
		})
	case 6:
		fmt.Fprintf(&d.out, "%d(", n)
		d.item(depth + 1)
		d.out.WriteString(")")
	default:
		d.simple(info, n)
	}
}

// string renders a byte or text string; one of indefinite length as its chunks.
func (d *diagnostic) string(major, info byte, n uint64) {
	if info == indefinite {
		d.list("(_ ", ")", info, 0, func() {
			chunk, size, n := d.head()
			if chunk != major || size == indefinite {
				d.bad = true
				return
			}
			d.string(major, size, n)
		})
		return
	}
	b := d.take(n)
	switch {
	case d.bad:
	case major == 2:
		d.out.WriteString("h'" + hex.EncodeToString(b) + "'")
	case !utf8.Valid(b):
		d.bad = true
	default:
		d.out.WriteString(strconv.QuoteToGraphic(string(b)))
	}
}

// list renders n elements, or those up to a break.
func (d *diagnostic) list(begin, end string, info byte, n uint64, element func()) {
	d.out.WriteString(begin)
	if info == indefinite && begin != "(_ " {
		d.out.WriteString("_ ")
	}
	for i := uint64(0); !d.bad; i++ {
		if info == indefinite {
			if len(d.in) > 0 && d.in[0] == 0xff {
				d.in = d.in[1:]
				break
			}
		} else if i == n {
			break
		}
		if i > 0 {
			d.out.WriteString(", ")
		}
		element()
	}
	d.out.WriteString(end)
}

// simple renders what is neither number, string nor collection.
func (d *diagnostic) simple(info byte, n uint64) {
	switch {
	case info == 20 || info == 21:
		d.out.WriteString(strconv.FormatBool(info == 21))
	case info == 22:
		d.out.WriteString("null")
	case info == 23:
		d.out.WriteString("undefined")
	case info == 25:
		d.float(half(uint16(n)))
	case info == 26:
		d.float(float64(math.Float32frombits(uint32(n))))
	case info == 27:
		d.float(math.Float64frombits(n))
	case info == indefinite, info == 24 && n < 32:
		d.bad = true
	default:
		fmt.Fprintf(&d.out, "simple(%d)", n)
	}
}

func (d *diagnostic) float(f float64) {
	switch {
	case math.IsNaN(f):
		d.out.WriteString("NaN")
	case math.IsInf(f, 0):
		d.out.WriteString(strings.Replace(strings.TrimPrefix(strconv.FormatFloat(f, 'g', -1, 64), "+"), "Inf", "Infinity", 1))
	default:
		text := strconv.FormatFloat(f, 'g', -1, 64)
		if !strings.ContainsAny(text, ".e") {
			text += ".0"
		}
		d.out.WriteString(text)
	}
}

// half is a number of 16 bits (RFC 8949 appendix D).
func half(bits uint16) float64 {
	exponent, mantissa := int(bits>>10&31), float64(bits&1023)
	f := math.Ldexp(mantissa+1024, exponent-25)
	switch exponent {
	case 0:
		f = math.Ldexp(mantissa, -24)
	case 31:
		if f = math.Inf(1); mantissa != 0 {
			f = math.NaN()
		}
	}
	if bits&0x8000 != 0 {
		return -f
	}
	return f
}
