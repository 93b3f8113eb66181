package packet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
)

// Link types of captures that ParseCaptured reads (the tcpdump group's list).
const (
	linkNull     = 0 // BSD loopback: 4 bytes of family
	linkEthernet = 1
	linkRawBSD   = 12
	linkRawOpen  = 14
	linkRaw      = 101
	linkLoop     = 108
	linkSLL      = 113 // Linux "any": 16 bytes
	linkIPv4     = 228
	linkIPv6     = 229
	linkSLL2     = 276 // 20 bytes
)

// Bounds of a capture file: its sender is no friend.
const (
	maxCaptured   = 1 << 18 // bytes of one packet, tcpdump's own limit
	maxBlock      = 1 << 20 // bytes of one pcapng block that is read
	maxInterfaces = 1 << 10
)

// ErrCapture is wrapped by every error about the form of a capture file.
var ErrCapture = errors.New("not a readable capture")

// Captured is one packet of a capture. Data is valid until the next call of Next.
type Captured struct {
	Data []byte
	Link uint16        // link type
	Time time.Duration // since 1970; 0 if the capture does not say
}

// CaptureReader reads pcap (micro- and nanoseconds, either byte order) and
// pcapng files (draft-ietf-opsawg-pcapng). Not for concurrent use.
type CaptureReader struct {
	r          io.Reader
	order      binary.ByteOrder
	next       bool // pcapng
	link       uint16
	unit       time.Duration // of the second time field in pcap
	interfaces []captureInterface
	buf        []byte
	header     [24]byte
}

type captureInterface struct {
	link  uint16
	ticks uint64 // per second
}

// NewCaptureReader reads the file header.
func NewCaptureReader(r io.Reader) (*CaptureReader, error) {
	c := &CaptureReader{r: r}
	if _, err := io.ReadFull(r, c.header[:4]); err != nil {
		return nil, fmt.Errorf("%w: shorter than its magic number", ErrCapture)
	}
	if magic := binary.LittleEndian.Uint32(c.header[:]); magic == 0x0a0d0d0a {
		c.next = true
		return c, c.section()
	}
	for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
		switch order.Uint32(c.header[:]) {
		case 0xa1b2c3d4:
			c.order, c.unit = order, time.Microsecond
		case 0xa1b23c4d:
			c.order, c.unit = order, time.Nanosecond
		}
	}
	if c.order == nil {
		return nil, fmt.Errorf("%w: magic number %x is neither pcap's nor pcapng's", ErrCapture, c.header[:4])
	}
	if _, err := io.ReadFull(r, c.header[4:24]); err != nil {
		return nil, fmt.Errorf("%w: ends inside its header", ErrCapture)
	}
	c.link = uint16(c.order.Uint32(c.header[20:]))
	return c, nil
}

// Next returns the next packet, or io.EOF after the last.
func (c *CaptureReader) Next() (Captured, error) {
	if c.next {
		return c.nextBlock()
	}
	if _, err := io.ReadFull(c.r, c.header[:16]); err == io.EOF {
		return Captured{}, io.EOF
	} else if err != nil {
		return Captured{}, fmt.Errorf("%w: ends inside a packet's header", ErrCapture)
	}
	data, err := c.read(c.order.Uint32(c.header[8:]), maxCaptured)
	if err != nil {
		return Captured{}, err
	}
	at := time.Duration(c.order.Uint32(c.header[0:]))*time.Second + time.Duration(c.order.Uint32(c.header[4:]))*c.unit
	return Captured{Data: data, Link: c.link, Time: at}, nil
}

// read returns the next n bytes, at most limit.
func (c *CaptureReader) read(n uint32, limit int) ([]byte, error) {
	if n > uint32(limit) {
		return nil, fmt.Errorf("%w: a length of %d bytes, more than %d", ErrCapture, n, limit)
	}
	if int(n) > cap(c.buf) {
		c.buf = make([]byte, n)
	}
	c.buf = c.buf[:n]
	if _, err := io.ReadFull(c.r, c.buf); err != nil {
		return nil, fmt.Errorf("%w: ends inside a packet", ErrCapture)
	}
	return c.buf, nil
}

// section reads a section header behind its type, which sets the byte order.
func (c *CaptureReader) section() error {
	if _, err := io.ReadFull(c.r, c.header[4:12]); err != nil {
		return fmt.Errorf("%w: ends inside a section header", ErrCapture)
	}
	switch {
	case binary.LittleEndian.Uint32(c.header[8:]) == 0x1a2b3c4d:
		c.order = binary.LittleEndian
	case binary.BigEndian.Uint32(c.header[8:]) == 0x1a2b3c4d:
		c.order = binary.BigEndian
	default:
		return fmt.Errorf("%w: a section without its byte-order magic", ErrCapture)
	}
	length := c.order.Uint32(c.header[4:])
	if length < 28 || length%4 != 0 {
		return fmt.Errorf("%w: a section header of %d bytes", ErrCapture, length)
	}
	c.interfaces = c.interfaces[:0]
	_, err := c.read(length-12, maxBlock)
	return err
}

// nextBlock goes through pcapng blocks up to one that holds a packet.
func (c *CaptureReader) nextBlock() (Captured, error) {
	for {
		if _, err := io.ReadFull(c.r, c.header[:4]); err == io.EOF {
			return Captured{}, io.EOF
		} else if err != nil {
			return Captured{}, fmt.Errorf("%w: ends inside a block", ErrCapture)
		}
		kind := c.order.Uint32(c.header[:])
		if kind == 0x0a0d0d0a { // reads the same in both byte orders
			if err := c.section(); err != nil {
				return Captured{}, err
			}
			continue
		}
		if _, err := io.ReadFull(c.r, c.header[4:8]); err != nil {
			return Captured{}, fmt.Errorf("%w: ends inside a block", ErrCapture)
		}
		length := c.order.Uint32(c.header[4:])
		if length < 12 || length%4 != 0 {
			return Captured{}, fmt.Errorf("%w: a block of %d bytes", ErrCapture, length)
		}
		body, err := c.read(length-8, maxBlock)
		if err != nil {
			return Captured{}, err
		}
		got, ok, err := c.block(kind, body[:len(body)-4])
		if err != nil || ok {
			return got, err
		}
	}
}

// block reads the body of one block; ok says that it held a packet.
func (c *CaptureReader) block(kind uint32, b []byte) (got Captured, ok bool, err error) {
	switch kind {
	case 1: // interface description
		if len(b) < 8 || len(c.interfaces) == maxInterfaces {
			return got, false, fmt.Errorf("%w: an impossible interface block", ErrCapture)
		}
		c.interfaces = append(c.interfaces, captureInterface{link: c.order.Uint16(b), ticks: c.resolution(b[8:])})
	case 3: // simple packet
		if len(b) < 4 || len(c.interfaces) == 0 {
			return got, false, fmt.Errorf("%w: an impossible packet block", ErrCapture)
		}
		n := min(int(c.order.Uint32(b)), len(b)-4)
		return Captured{Data: b[4 : 4+n], Link: c.interfaces[0].link}, true, nil
	case 6: // enhanced packet
		if len(b) < 20 || c.order.Uint32(b) >= uint32(len(c.interfaces)) || c.order.Uint32(b[12:]) > uint32(len(b)-20) {
			return got, false, fmt.Errorf("%w: an impossible packet block", ErrCapture)
		}
		on := c.interfaces[c.order.Uint32(b)]
		ticks := uint64(c.order.Uint32(b[4:]))<<32 | uint64(c.order.Uint32(b[8:]))
		at := time.Duration(ticks/on.ticks)*time.Second +
			time.Duration(float64(ticks%on.ticks)/float64(on.ticks)*float64(time.Second))
		return Captured{Data: b[20 : 20+c.order.Uint32(b[12:])], Link: on.link, Time: at}, true, nil
	}
	return got, false, nil
}

// resolution finds the time unit among an interface's options (if_tsresol).
func (c *CaptureReader) resolution(b []byte) uint64 {
	const microseconds = 1_000_000
	for len(b) >= 4 {
		code, n := c.order.Uint16(b), int(c.order.Uint16(b[2:]))
		if code == 0 || n > len(b)-4 {
			break
		}
		if code == 9 && n >= 1 {
			v := b[4]
			if v&0x80 != 0 {
				return 1 << min(v&0x7f, 63)
			}
			ticks := uint64(1)
			for range min(v, 18) {
				ticks *= 10
			}
			return ticks
		}
		b = b[min(4+(n+3)&^3, len(b)):]
	}
	return microseconds
}

// ParseCaptured reads a captured packet of any link type that carries IP.
// ErrNotIP: it carries something else, or the link type is unknown.
func ParseCaptured(c Captured, p *Packet) error {
	skip := 0
	switch c.Link {
	case linkEthernet:
		return ParseFrame(c.Data, p)
	case linkRaw, linkRawBSD, linkRawOpen, linkIPv4, linkIPv6:
	case linkNull, linkLoop:
		skip = 4
	case linkSLL:
		skip = 16
	case linkSLL2:
		skip = 20
	default:
		return ErrNotIP
	}
	if len(c.Data) < skip {
		return ErrTruncated
	}
	kind := uint16(0)
	if c.Link == linkSLL {
		kind = binary.BigEndian.Uint16(c.Data[14:])
	} else if c.Link == linkSLL2 {
		kind = binary.BigEndian.Uint16(c.Data)
	}
	if kind != 0 && kind != etherIPv4 && kind != etherIPv6 {
		return ErrNotIP
	}
	return Parse(c.Data[skip:], p)
}
