package replay

// Held is the number of datagrams whose fragments are held.
func (t *Tracer) Held() int { return len(t.held) }
