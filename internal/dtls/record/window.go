package record

// windowSize is how far behind the newest record one may come (RFC 6347
// section 4.1.2.6).
const windowSize = 64

// Window is a replay window over record sequence numbers. The zero value has
// seen none.
type Window struct {
	next uint64 // one past the newest seen; 0: none
	bits uint64 // bit i: next-1-i has been seen
}

// Check reports whether a record of this sequence may still be new. It changes
// nothing, for the record is not authenticated yet.
func (w *Window) Check(sequence uint64) bool {
	if sequence >= w.next {
		return true
	}
	behind := w.next - 1 - sequence
	return behind < windowSize && w.bits>>behind&1 == 0
}

// Mark notes an authenticated record and reports whether it is the newest so
// far. Check has allowed it.
func (w *Window) Mark(sequence uint64) (newest bool) {
	if sequence >= w.next {
		shift := sequence + 1 - w.next
		if shift >= windowSize {
			w.bits = 0
		} else {
			w.bits <<= shift
		}
		w.bits |= 1
		w.next = sequence + 1
		return true
	}
	w.bits |= 1 << (w.next - 1 - sequence)
	return false
}

// Newest returns one more than the newest sequence seen, 0 if none was.
func (w *Window) Newest() uint64 { return w.next }

// Begin marks a sequence and all before it as seen.
func (w *Window) Begin(sequence uint64) { w.next, w.bits = sequence+1, ^uint64(0) }

// Bits are those of the window: bit i says that the sequence Newest-1-i was seen.
func (w *Window) Bits() uint64 { return w.bits }

// NewWindow returns a window with what Newest and Bits of another one have returned.
func NewWindow(newest, bits uint64) Window { return Window{next: newest, bits: bits} }
