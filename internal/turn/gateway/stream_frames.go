package gateway

import (
	"encoding/binary"
	"io"
	"sync"
	"sync/atomic"

	"github.com/weir-lb/weir/internal/turn/allocation"
)

// Over a stream the messages of a client follow one another without additional framing: a STUN message has its
// length in its header (RFC 8489 §5); so has a ChannelData message, which is padded to four bytes (RFC 8656 §12.5).
const (
	stunHeader    = 20
	stunCookie    = 0x2112A442
	channelHeader = 4

	// maxFrame is the longest message of a stream in bytes: ChannelData with 65,535 bytes and its padding is shorter.
	maxFrame = stunHeader + 65532
	// maxYoungFrame limits the messages of a client without an allocation. Every request fits (a user name of 509
	// bytes, a realm and a nonce of 763 bytes each, and the rest), and the first bytes of another protocol usually
	// indicate a longer message.
	maxYoungFrame = 4096

	chunkBytes = 16 << 10
	// maxIdleRest is how much memory in bytes a connection keeps between incomplete frames.
	maxIdleRest = 1536
)

// frameSize returns how many bytes the message at the beginning of b takes with its padding; 0 means that b is too
// short to tell. ok is false if no TURN client begins a message like this; the stream cannot be parsed any further.
func frameSize(b []byte) (size int, ok bool) {
	if len(b) > 0 && b[0]&0xC0 > 0x40 {
		return 0, false
	}
	if len(b) < channelHeader || isStun(b) && len(b) < 8 {
		return 0, true
	}
	if isStun(b) && binary.BigEndian.Uint32(b[4:]) != stunCookie {
		return 0, false
	}
	return allocation.FrameSize(b)
}

// isStun distinguishes a STUN message from ChannelData by its first two bits.
func isStun(frame []byte) bool { return frame[0]&0xC0 == 0 }

// chunk is the result of one read of a stream: whole frames, each with its padding, and the memory that they are in.
type chunk struct {
	buf    []byte
	frames [][]byte // alias buf
}

// chunkPool reuses the memory of chunks between reads. The zero value is ready to use.
type chunkPool struct{ pool sync.Pool }

// get returns a chunk of at least size bytes.
func (p *chunkPool) get(size int) *chunk {
	if size <= chunkBytes {
		if c, ok := p.pool.Get().(*chunk); ok {
			return c
		}
		size = chunkBytes
	}
	return &chunk{buf: make([]byte, size)}
}

// put takes a chunk back whose frames are no longer used. The memory of a long frame is left to the garbage
// collector.
func (p *chunkPool) put(c *chunk) {
	if len(c.buf) == chunkBytes {
		clear(c.frames)
		c.frames = c.frames[:0]
		p.pool.Put(c)
	}
}

// frameReader splits a stream into frames. It belongs to one goroutine.
type frameReader struct {
	pool  *chunkPool
	limit atomic.Int64 // bytes of the longest frame; any goroutine may change it
	rest  []byte       // the beginning of an incomplete frame
	long  *chunk       // the memory of rest if that frame is too long for a chunk of the pool
}

// read calls r.Read once and returns the frames that are complete afterwards, or nil if the first one is still
// incomplete. The caller returns the chunk by pool.put. A frame longer than limit ends the stream with errLongFrame,
// and bytes that no TURN client sends end it with errNotTurn; the frames before them are returned.
func (f *frameReader) read(r io.Reader) (*chunk, error) {
	size, ok := frameSize(f.rest)
	if !ok {
		return nil, errNotTurn
	}
	c, have := f.long, len(f.rest)
	if c == nil {
		c = f.pool.get(size)
		copy(c.buf, f.rest)
	}
	n, err := r.Read(c.buf[have:])
	if n == 0 {
		if f.long == nil {
			f.pool.put(c)
		}
		return nil, err
	}
	b, limit := c.buf[:have+n], int(f.limit.Load()) // read it now, because the read may have taken long
	for len(b) > 0 {
		size, ok := frameSize(b)
		if !ok {
			err = errNotTurn
			break
		}
		if size > limit {
			err = errLongFrame
			break
		}
		if size == 0 || size > len(b) {
			break
		}
		c.frames = append(c.frames, b[:size:size])
		b = b[size:]
	}
	if len(c.frames) == 0 && len(c.buf) > chunkBytes { // the long frame stays in this memory, so that the frame of a client that sends byte by byte is copied only once
		f.rest, f.long = b, c
		return nil, err
	}
	if f.long != nil { // the frames are in the memory of rest
		f.rest, f.long = nil, nil
	}
	f.rest = append(f.rest[:0], b...)
	if len(b) == 0 && cap(f.rest) > maxIdleRest {
		f.rest = nil
	}
	if len(c.frames) == 0 {
		f.pool.put(c)
		return nil, err
	}
	return c, err
}

// take returns the bytes that were read and belong to no frame yet, for the code that continues with the raw stream.
func (f *frameReader) take() []byte {
	rest := f.rest
	f.rest, f.long = nil, nil
	return rest
}

// errNotTurn and errLongFrame end a stream whose bytes are not those of a TURN client.
const (
	errNotTurn   = streamError("the stream carries no TURN messages")
	errLongFrame = streamError("the stream announces a longer message than is allowed")
)

// streamError is a constant error.
type streamError string

func (e streamError) Error() string { return string(e) }
