package stream

import "github.com/weir-lb/weir/internal/coap/message"

// Decoder finds the messages in a stream of bytes. The zero Decoder accepts messages of MaxMessage bytes. Not for concurrent use.
type Decoder struct {
	// Max is the length in bytes of the longest message; 0: MaxMessage.
	Max  int
	in   []byte // not decoded yet; aliases rest or what Feed was given
	rest []byte // of an incomplete message
	size int    // of the frame that in begins with, once it is known
}

// Feed adds bytes that were received. They must stay unchanged until Next has returned false.
func (d *Decoder) Feed(in []byte) {
	if len(d.rest) == 0 {
		d.in = in
		return
	}
	d.rest = append(d.rest, in...)
	d.in = d.rest
}

// Next reads the next complete message into m, whose slices are valid until the next Feed. It returns false when there is none,
// and must be called until then. After an error the connection has to end: Session.Fail writes the Abort.
func (d *Decoder) Next(m *message.Message) (bool, error) {
	if d.in == nil {
		d.in = d.rest
	}
	if d.size == 0 {
		size, err := Size(d.in)
		if err != nil {
			return false, err
		}
		if size > d.limit() {
			return false, ErrLength
		}
		d.size = size
	}
	if d.size == 0 || d.size > len(d.in) {
		d.save()
		return false, nil
	}
	frame := d.in[:d.size]
	d.in, d.size = d.in[d.size:], 0
	return true, Parse(frame, m)
}

func (d *Decoder) limit() int {
	if d.Max == 0 {
		return MaxMessage
	}
	return d.Max
}

// Pause copies what Next has not decoded, so that the bytes given to Feed may change before Next has returned false. Next goes on where
// it was.
func (d *Decoder) Pause() { d.save() }

// save keeps the bytes of an incomplete message, and no memory without one.
func (d *Decoder) save() {
	if len(d.in) == 0 {
		d.rest, d.in = nil, nil
		return
	}
	if len(d.in) != len(d.rest) { // else they are there already
		d.rest = append(d.rest[:0], d.in...)
	}
	d.in = nil
}

// Held returns how many bytes of memory an incomplete message takes.
func (d *Decoder) Held() int { return cap(d.rest) }
