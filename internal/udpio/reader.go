package udpio

// Reader reads batches from many Sockets of one worker, so that the sockets need no state of their own. It belongs to
// one goroutine.
type Reader struct {
	state readState
}

// NewReader returns a reader of at most batch datagrams per call.
func NewReader(batch int) *Reader { return &Reader{state: newReadState(batch, true)} }

// Read fills messages from s and returns how many, without waiting. EAGAIN means that there is none. Other errors are
// bare errnos, and network errors (ECONNREFUSED …) are responses to earlier datagrams: the next call continues.
func (r *Reader) Read(s *Socket, messages []Message) (int, error) {
	n, errno := r.state.receive(int(s.fd)-1, messages)
	if errno != 0 {
		return 0, errnoErr(errno)
	}
	for i := range n {
		r.state.take(&messages[i], i)
	}
	return n, nil
}
