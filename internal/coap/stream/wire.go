package stream

import "net"

// Wire is what a TLS connection reads from and writes to where a poller watches the socket. The handshake blocks on Conn, in a
// goroutine. Then the owner of the poller sets Out: TLS reads what the owner has read into In, and gets ErrWouldBlock instead of
// blocking; what TLS writes is appended to Out.
type Wire struct {
	net.Conn         // used while it blocks
	Out      *[]byte // nil: reads and writes block
	In       []byte
	Err      error // of the socket, after In
}

// ErrWouldBlock is a net.Error that crypto/tls treats as temporary: the next Read continues where this one ended.
var ErrWouldBlock net.Error = wouldBlock{}

type wouldBlock struct{}

func (wouldBlock) Error() string   { return "nothing to read now" }
func (wouldBlock) Timeout() bool   { return true }
func (wouldBlock) Temporary() bool { return true }

// Read implements net.Conn.
func (w *Wire) Read(b []byte) (int, error) {
	switch {
	case len(w.In) > 0:
		n := copy(b, w.In)
		w.In = w.In[n:]
		return n, nil
	case w.Out == nil:
		return w.Conn.Read(b)
	case w.Err != nil:
		return 0, w.Err
	}
	return 0, ErrWouldBlock
}

// Write implements net.Conn.
func (w *Wire) Write(b []byte) (int, error) {
	if w.Out == nil {
		return w.Conn.Write(b)
	}
	*w.Out = append(*w.Out, b...)
	return len(b), nil
}
