package packet

import (
	"encoding/binary"
	"fmt"
	"io"
	"time"
)

// CaptureWriter writes a pcapng file (draft-ietf-opsawg-pcapng): nanosecond
// times, several interfaces, a comment on each packet. Not for concurrent use.
type CaptureWriter struct {
	w          io.Writer
	interfaces uint32
	buf        []byte
}

// Block and option codes.
const (
	blockSection   = 0x0a0d0d0a
	blockInterface = 1
	blockPacket    = 6

	optionComment = 1
	optionName    = 2 // if_name
	optionApp     = 4 // shb_userappl
	optionUnit    = 9 // if_tsresol
)

// NewCaptureWriter writes the section header. application is named in the file.
func NewCaptureWriter(w io.Writer, application string) (*CaptureWriter, error) {
	c := &CaptureWriter{w: w}
	c.begin(blockSection)
	c.buf = binary.LittleEndian.AppendUint32(c.buf, 0x1a2b3c4d)
	c.buf = binary.LittleEndian.AppendUint16(c.buf, 1) // version 1.0
	c.buf = binary.LittleEndian.AppendUint16(c.buf, 0)
	c.buf = binary.LittleEndian.AppendUint64(c.buf, ^uint64(0)) // the section's length is not known
	c.option(optionApp, []byte(application))
	return c, c.end()
}

// Interface describes an Ethernet interface and returns its number for Packet.
func (c *CaptureWriter) Interface(name string) (int, error) { return c.add(name, linkEthernet) }

// IPInterface is Interface for packets that begin with the IP header.
func (c *CaptureWriter) IPInterface(name string) (int, error) { return c.add(name, linkRaw) }

func (c *CaptureWriter) add(name string, link uint16) (int, error) {
	if c.interfaces == maxInterfaces {
		return 0, fmt.Errorf("more than %d interfaces in one capture", maxInterfaces)
	}
	c.begin(blockInterface)
	c.buf = binary.LittleEndian.AppendUint16(c.buf, link)
	c.buf = binary.LittleEndian.AppendUint16(c.buf, 0)
	c.buf = binary.LittleEndian.AppendUint32(c.buf, 0) // packets are cut one by one
	c.option(optionName, []byte(name))
	c.option(optionUnit, []byte{9})
	c.interfaces++
	return int(c.interfaces) - 1, c.end()
}

// Packet writes one frame: when (since 1970), its length on the wire, what was
// captured of it, and a comment, which may be empty.
func (c *CaptureWriter) Packet(on int, at time.Duration, length int, data []byte, comment string) error {
	if on < 0 || uint32(on) >= c.interfaces {
		return fmt.Errorf("a capture has no interface %d", on)
	}
	if len(data) > maxCaptured {
		return fmt.Errorf("a packet of %d bytes in a capture; at most %d", len(data), maxCaptured)
	}
	c.begin(blockPacket)
	ticks := uint64(max(at, 0))
	for _, v := range []uint32{uint32(on), uint32(ticks >> 32), uint32(ticks), uint32(len(data)), uint32(max(length, len(data)))} {
		c.buf = binary.LittleEndian.AppendUint32(c.buf, v)
	}
	c.buf = append(c.buf, data...)
	c.pad()
	c.option(optionComment, []byte(comment))
	return c.end()
}

// begin starts a block, its length to be filled in by end.
func (c *CaptureWriter) begin(kind uint32) {
	c.buf = binary.LittleEndian.AppendUint32(c.buf[:0], kind)
	c.buf = binary.LittleEndian.AppendUint32(c.buf, 0)
}

func (c *CaptureWriter) pad() {
	for len(c.buf)%4 != 0 {
		c.buf = append(c.buf, 0)
	}
}

// option adds one option, if it has a value.
func (c *CaptureWriter) option(code uint16, value []byte) {
	const maximum = 1<<16 - 4
	if len(value) == 0 {
		return
	}
	value = value[:min(len(value), maximum)]
	c.buf = binary.LittleEndian.AppendUint16(c.buf, code)
	c.buf = binary.LittleEndian.AppendUint16(c.buf, uint16(len(value)))
	c.buf = append(c.buf, value...)
	c.pad()
}

// end closes the options and writes the block.
func (c *CaptureWriter) end() error {
	c.buf = binary.LittleEndian.AppendUint32(c.buf, 0) // opt_endofopt
	length := uint32(len(c.buf) + 4)
	c.buf = binary.LittleEndian.AppendUint32(c.buf, length)
	binary.LittleEndian.PutUint32(c.buf[4:], length)
	if _, err := c.w.Write(c.buf); err != nil {
		return fmt.Errorf("write capture: %w", err)
	}
	return nil
}
