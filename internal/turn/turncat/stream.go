package turncat

import (
	"errors"
	"io"
	"net"
	"sync"

	"github.com/weir-lb/weir/internal/turn/requests"
	"github.com/weir-lb/weir/internal/workers"
)

// outboxBytes limits the bytes queued for a stream; more is dropped and counted.
const outboxBytes = 256 << 10

// stream is a connection with a goroutine for each direction: a client's (TCP, Unix, standard input and output) or a link's (TCP,
// TLS, DTLS). The worker never waits for it.
type stream struct {
	in  io.Reader
	out io.Writer
	end func() // closes both directions; ends a blocked read if the system allows it
	// messages: each datagram is one Write of its own (DTLS). Otherwise writes are combined.
	messages bool

	client *client // used by the worker: the client of this stream
	link   *link   // used by the worker: or the link of this stream

	mu      sync.Mutex
	filled  sync.Cond
	data    []byte
	lengths []int // with messages
	closed  bool
	drained chan struct{}
}

func newStream(in io.Reader, out io.Writer, end func()) *stream {
	s := &stream{in: in, out: out, end: end, drained: make(chan struct{})}
	s.filled.L = &s.mu
	return s
}

// put queues head and data as one message, with pad zero bytes behind it. It returns false if there is no space. It
// copies and never blocks.
func (s *stream) put(head, data []byte, pad int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(head) + len(data) + pad
	if s.closed || len(s.data)+n > outboxBytes {
		return false
	}
	first := len(s.data) == 0
	s.data = append(append(s.data, head...), data...)
	for range pad {
		s.data = append(s.data, 0)
	}
	if s.messages {
		s.lengths = append(s.lengths, n)
	}
	if first {
		s.filled.Signal()
	}
	return true
}

// close ends the stream after what is queued was written.
func (s *stream) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.filled.Signal()
}

// write is the goroutine of the output.
func (s *stream) write() {
	defer close(s.drained)
	defer s.end()
	var data []byte
	var lengths []int
	for {
		s.mu.Lock()
		for len(s.data) == 0 && !s.closed {
			s.filled.Wait()
		}
		if len(s.data) == 0 {
			s.mu.Unlock()
			return
		}
		data, s.data = s.data, data[:0]
		lengths, s.lengths = s.lengths, lengths[:0]
		s.mu.Unlock()
		if err := s.writeAll(data, lengths); err != nil {
			s.mu.Lock()
			s.closed, s.data = true, nil
			s.mu.Unlock()
			return // the reader notices the end, too, and notifies the worker
		}
	}
}

func (s *stream) writeAll(data []byte, lengths []int) error {
	if !s.messages {
		_, err := s.out.Write(data)
		return err
	}
	for _, n := range lengths {
		if _, err := s.out.Write(data[:n]); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

// readWhole is the goroutine of the input where one read is one datagram: a client's byte stream, or DTLS.
func (s *stream) readWhole(to *workers.Mailbox[entry], size int) {
	buffer := make([]byte, size)
	for {
		n, err := s.in.Read(buffer)
		if n > 0 {
			one := [...]entry{{notice: datagram, stream: s, n: n}}
			if !to.PutAll(one[:], buffer[:n]...) {
				return
			}
		}
		if err != nil {
			to.Put(entry{notice: finished, stream: s, err: regular(err)})
			return
		}
	}
}

var errNotTURN = errors.New("the server sent what is neither STUN nor ChannelData; is a TURN server there?")

// readFrames is the goroutine of the input of a TCP or TLS link (RFC 8656 section 12.5).
func (s *stream) readFrames(to *workers.Mailbox[entry]) {
	buffer := make([]byte, 128<<10) // space for one more read behind the largest message
	have := 0
	var frames []entry
	for {
		n, err := s.in.Read(buffer[have:])
		if n > 0 {
			have += n
			whole, bad := 0, false
			frames = frames[:0]
			for {
				size, ok := requests.FrameSize(buffer[whole:have])
				if bad = !ok; bad || size == 0 || size > have-whole {
					break
				}
				frames = append(frames, entry{notice: datagram, stream: s, n: size})
				whole += size
			}
			if len(frames) > 0 && !to.PutAll(frames, buffer[:whole]...) {
				return
			}
			have = copy(buffer, buffer[whole:have])
			if bad {
				err = errNotTURN
			}
		}
		if err != nil {
			to.Put(entry{notice: finished, stream: s, err: regular(err)})
			return
		}
	}
}

// regular returns nil for errors that are a normal end of a stream.
func regular(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
