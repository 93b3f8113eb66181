package udpio

// Reader reads batches from many Sockets of one worker, which then need no state of their own. It belongs to one
// goroutine.
type Reader struct {
	state readState
}

// NewReader returns a reader of at most batch datagrams a call.
func NewReader(batch int) *Reader { return &Reader{state: newReadState(batch, true)} }

// Read fills messages from s and returns how many, without waiting. EAGAIN says that there is none; other errors are
// bare, and those of the network (ECONNREFUSED …) are answers to earlier datagrams: the next call goes on.
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
