package record

// SetForged sets how many records have failed to open.
func (a *Association) SetForged(n uint64) { a.forged = n }

// SetNext sets the next record's sequence number.
func (a *Association) SetNext(n uint64) { a.next = n }

// Expanded says of which keys of an association the ciphers exist, read and write.
func Expanded(a *Association) [2]bool { return [2]bool{a.read.expanded(), a.write.expanded()} }
