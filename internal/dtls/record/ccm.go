package record

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"math"
)

// Scratch holds the working blocks of one goroutine, so that associations need
// none of their own. It must be on the heap: ciphers are called through an
// interface.
type Scratch struct {
	nonce         [12]byte
	aad           [8 + 3 + 2 + 8 + MaxCID + 2]byte
	mac, ctr, key [aes.BlockSize]byte
	full          [aes.BlockSize]byte
}

// CCM is AES in counter mode with CBC-MAC (RFC 3610), in place and without
// allocating. The standard library has none.
type CCM struct {
	block cipher.Block
	tag   int
}

// NewCCM returns CCM for a key of 16, 24 or 32 bytes with tags of an even
// length from 4 to 16 bytes.
func NewCCM(key []byte, tagLength int) (*CCM, error) {
	if tagLength < 4 || tagLength > 16 || tagLength%2 != 0 {
		return nil, errors.New("CCM tag length must be even, from 4 to 16")
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return &CCM{block: block, tag: tagLength}, nil
}

// Seal encrypts buf[:n] in place and writes the tag behind it; the result is
// buf[:n+tagLength], which buf must have room for. The nonce, 7 to 13 bytes,
// must never repeat under one key, and n stay below 256^(15-len(nonce)).
func (c *CCM) Seal(s *Scratch, nonce, aad, buf []byte, n int) []byte {
	c.start(s, nonce, aad, n)
	block := c.block
	step := uint64(0)
	data := buf[:n]
	for len(data) >= aes.BlockSize {
		step++
		c.count(s, nonce, step)
		p0, p1 := binary.LittleEndian.Uint64(data), binary.LittleEndian.Uint64(data[8:])
		xor(&s.mac, p0, p1)
		block.Encrypt(s.key[:], s.ctr[:])
		block.Encrypt(s.mac[:], s.mac[:])
		binary.LittleEndian.PutUint64(data, p0^binary.LittleEndian.Uint64(s.key[:]))
		binary.LittleEndian.PutUint64(data[8:], p1^binary.LittleEndian.Uint64(s.key[8:]))
		data = data[aes.BlockSize:]
	}
	if len(data) > 0 {
		step++
		c.count(s, nonce, step)
		block.Encrypt(s.key[:], s.ctr[:])
		for i, b := range data {
			s.mac[i] ^= b
			data[i] = b ^ s.key[i]
		}
		block.Encrypt(s.mac[:], s.mac[:])
	}
	c.count(s, nonce, 0)
	block.Encrypt(s.key[:], s.ctr[:])
	tag := buf[n : n+c.tag]
	for i := range tag {
		tag[i] = s.mac[i] ^ s.key[i]
	}
	return buf[:n+c.tag]
}

// Open verifies buf, ciphertext and tag, and decrypts it in place. When it
// returns false buf is garbage and must be dropped.
func (c *CCM) Open(s *Scratch, nonce, aad, buf []byte) ([]byte, bool) {
	n := len(buf) - c.tag
	if n < 0 {
		return nil, false
	}
	c.start(s, nonce, aad, n)
	block := c.block
	step := uint64(1)
	data := buf[:n]
	if n > 0 {
		c.count(s, nonce, 1)
		block.Encrypt(s.key[:], s.ctr[:])
	}
	for len(data) >= aes.BlockSize {
		p0 := binary.LittleEndian.Uint64(data) ^ binary.LittleEndian.Uint64(s.key[:])
		p1 := binary.LittleEndian.Uint64(data[8:]) ^ binary.LittleEndian.Uint64(s.key[8:])
		binary.LittleEndian.PutUint64(data, p0)
		binary.LittleEndian.PutUint64(data[8:], p1)
		xor(&s.mac, p0, p1)
		if data = data[aes.BlockSize:]; len(data) > 0 {
			// The next key block does not wait for the MAC: the two overlap.
			step++
			c.count(s, nonce, step)
			block.Encrypt(s.key[:], s.ctr[:])
		}
		block.Encrypt(s.mac[:], s.mac[:])
	}
	if len(data) > 0 {
		for i, b := range data {
			b ^= s.key[i]
			data[i] = b
			s.mac[i] ^= b
		}
		block.Encrypt(s.mac[:], s.mac[:])
	}
	c.count(s, nonce, 0)
	block.Encrypt(s.key[:], s.ctr[:])
	for i := range s.full {
		s.full[i] = s.mac[i] ^ s.key[i]
	}
	return buf[:n], subtle.ConstantTimeCompare(s.full[:c.tag], buf[n:]) == 1
}

// start computes the MAC over B_0 and the additional data (RFC 3610 section 2.2).
func (c *CCM) start(s *Scratch, nonce, aad []byte, n int) {
	if len(nonce) < 7 || len(nonce) > 13 || len(aad) > math.MaxUint16-0x100 ||
		(len(nonce) == 13 && n > math.MaxUint16) {
		panic("record: CCM nonce, data or additional data out of range")
	}
	s.mac = [aes.BlockSize]byte{}
	binary.BigEndian.PutUint64(s.mac[8:], uint64(n))
	copy(s.mac[1:], nonce)
	flags := byte((c.tag-2)/2<<3) | byte(14-len(nonce))
	if len(aad) > 0 {
		flags |= 0x40
	}
	s.mac[0] = flags
	c.block.Encrypt(s.mac[:], s.mac[:])
	if len(aad) > 0 {
		s.mac[0] ^= byte(len(aad) >> 8)
		s.mac[1] ^= byte(len(aad))
		at := 2
		for len(aad) > 0 {
			m := subtle.XORBytes(s.mac[at:], s.mac[at:], aad)
			aad = aad[m:]
			c.block.Encrypt(s.mac[:], s.mac[:])
			at = 0
		}
	}
}

// count sets the counter block A_step, of 24 bits at most: 2^28 bytes.
func (c *CCM) count(s *Scratch, nonce []byte, step uint64) {
	if step < 2 {
		binary.BigEndian.PutUint64(s.ctr[8:], step)
		s.ctr[0] = byte(14 - len(nonce))
		copy(s.ctr[1:], nonce)
		s.ctr[15] = byte(step)
		return
	}
	s.ctr[15] = byte(step)
	s.ctr[14] = byte(step >> 8)
	if len(nonce) < 13 {
		s.ctr[13] = byte(step >> 16)
	}
}

func xor(block *[aes.BlockSize]byte, p0, p1 uint64) {
	binary.LittleEndian.PutUint64(block[:], binary.LittleEndian.Uint64(block[:])^p0)
	binary.LittleEndian.PutUint64(block[8:], binary.LittleEndian.Uint64(block[8:])^p1)
}
