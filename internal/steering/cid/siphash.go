package cid

import (
	"encoding/binary"
	"math/bits"
)

// sipHash is SipHash-2-4. Packages of the lowest row import nothing of ours, so flow's is out of reach; both are held
// to the published vectors.
func sipHash(key *[16]byte, message []byte) uint64 {
	k0, k1 := binary.LittleEndian.Uint64(key[:8]), binary.LittleEndian.Uint64(key[8:])
	s := sipState{k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573}
	last := uint64(len(message)) << 56
	for len(message) >= 8 {
		s.word(binary.LittleEndian.Uint64(message))
		message = message[8:]
	}
	for i, x := range message {
		last |= uint64(x) << (8 * i)
	}
	s.word(last)
	s.c ^= 0xff
	for range 4 {
		s.round()
	}
	return s.a ^ s.b ^ s.c ^ s.d
}

type sipState struct{ a, b, c, d uint64 }

func (s *sipState) word(m uint64) {
	s.d ^= m
	s.round()
	s.round()
	s.a ^= m
}

func (s *sipState) round() {
	s.a += s.b
	s.b = bits.RotateLeft64(s.b, 13) ^ s.a
	s.a = bits.RotateLeft64(s.a, 32)
	s.c += s.d
	s.d = bits.RotateLeft64(s.d, 16) ^ s.c
	s.a += s.d
	s.d = bits.RotateLeft64(s.d, 21) ^ s.a
	s.c += s.b
	s.b = bits.RotateLeft64(s.b, 17) ^ s.c
	s.c = bits.RotateLeft64(s.c, 32)
}
