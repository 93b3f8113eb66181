package cid

import (
	"errors"
	"fmt"
)

// Set describes the CIDs that one service accepts: the formats on its port and the layouts in use, newest first. More than
// one layout requires rotation bits at the same position in all of them, with different values; their lengths may then
// differ. Immutable after Validate, safe for concurrent use.
type Set struct {
	Protocols Protocols
	Layouts   []Layout
}

// Find locates the CID of a UDP payload and decodes its owner. found: there is a CID that the server chose. The CID of a
// QUIC Initial does not count; that of an unknown QUIC version counts if it matches one of the layouts. layout is the index
// of the CID's layout, to which owner belongs; -1: the CID matches none of them. Find allocates nothing.
func (s *Set) Find(datagram []byte) (layout int, owner uint32, found bool) {
	for i := range s.Layouts {
		id, kind, ok := Locate(datagram, s.Protocols, s.Layouts[i].Length)
		if !ok || kind == KindQUICInitial {
			continue
		}
		found = found || kind != KindQUICOther
		if owner, ok = s.Layouts[i].Owner(id); ok {
			return i, owner, true
		}
	}
	return -1, 0, found
}

// Validate reports the first thing wrong, with the index of the layout (-1: the set as a whole).
func (s *Set) Validate() (layout int, err error) {
	if s.Protocols == 0 {
		return -1, errors.New("no protocol")
	}
	if len(s.Layouts) == 0 {
		return -1, errors.New("no layout")
	}
	for i := range s.Layouts {
		l := &s.Layouts[i]
		if err := l.Validate(); err != nil {
			return i, err
		}
		for j := range i {
			other := &s.Layouts[j]
			switch {
			case l.RotationBits == 0 || other.RotationBits == 0:
				return i, errors.New("several layouts need rotation bits in each of them")
			case l.RotationBits != other.RotationBits || l.RotationOffset != other.RotationOffset:
				return i, errors.New("rotation bits are not at the same place in all layouts")
			case l.Rotation == other.Rotation:
				return i, fmt.Errorf("rotation value %d is taken by layout %d", l.Rotation, j)
			}
		}
	}
	return 0, nil
}
