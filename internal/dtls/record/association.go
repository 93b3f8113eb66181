package record

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
)

// Keys is the key block of an association (RFC 5246 section 6.3). A suite with keys of 128 bits uses the first half of each.
type Keys struct {
	ClientKey, ServerKey [32]byte
	ClientIV, ServerIV   [fixedIV]byte
}

// SplitKeys divides a key block of suite.KeysLength bytes.
func SplitKeys(suite Suite, block []byte) (k Keys) {
	n := int(suite.parameters().key)
	copy(k.ClientKey[:], block[:n])
	copy(k.ServerKey[:], block[n:2*n])
	copy(k.ClientIV[:], block[2*n:])
	copy(k.ServerIV[:], block[2*n+fixedIV:])
	return k
}

// Side is an end of an association.
type Side uint8

// The two ends.
const (
	Client Side = iota
	Server
)

// Verdict is what Open found.
type Verdict uint8

// Verdicts. After any but Opened the record is to be dropped; after Spent the session is to be ended.
const (
	Opened     Verdict = iota
	Replayed           // seen before, or too old to know
	Forged             // the tag is wrong
	WrongEpoch         // not of the epoch of these keys
	Broken             // authentic, but not a record that makes sense
	Spent              // too many records have failed: the keys must not be used again, but for an alert that says so
)

// Errors of Seal.
var (
	ErrSpent = errors.New("record sequence numbers or AEAD limits are used up")
	ErrSize  = errors.New("record too large for its buffer")
)

// half is one direction's protection.
type half struct {
	ccm   *CCM
	gcm   cipher.AEAD // both nil: the key is not expanded
	key   [32]byte
	iv    [fixedIV]byte
	cid   [MaxCID]byte
	cidOn bool
	cidN  uint8
}

// Association protects the records of one peer in epoch 1. Not safe for
// concurrent use.
type Association struct {
	suite       *parameters
	read, write half
	window      Window
	next        uint64 // sequence of the next record we seal
	forged      uint64
	limit       uint16 // of the plaintext of the records we seal, in bytes
	resting     bool   // see Rest
}

// NewAssociation makes an association. readCID is what the peer puts into its
// records, writeCID what we put into ours; nil means none was negotiated in that
// direction, or one of length zero: with either, records are of the plain
// types, as RFC 9146 section 3 says.
func NewAssociation(suite Suite, keys *Keys, side Side, readCID, writeCID []byte) (*Association, error) {
	a, err := NewResting(suite, keys, side, readCID, writeCID)
	if err != nil {
		return nil, err
	}
	a.resting = false
	return a, errors.Join(a.read.expand(a.suite), a.write.expand(a.suite))
}

// NewResting makes an association as NewAssociation does, at rest: see Rest. That costs a tenth of the time.
func NewResting(suite Suite, keys *Keys, side Side, readCID, writeCID []byte) (*Association, error) {
	if !suite.Known() {
		return nil, fmt.Errorf("cipher suite 0x%04x is not known", uint16(suite))
	}
	if len(readCID) > MaxCID || len(writeCID) > MaxCID {
		return nil, fmt.Errorf("connection id longer than %d bytes", MaxCID)
	}
	parameters := suite.parameters()
	a := &Association{suite: parameters, limit: MaxPlaintext, resting: true}
	client, server := &a.write, &a.read
	if side == Server {
		client, server = server, client
	}
	client.key, client.iv = keys.ClientKey, keys.ClientIV
	server.key, server.iv = keys.ServerKey, keys.ServerIV
	a.read.setCID(readCID)
	a.write.setCID(writeCID)
	return a, nil
}

// expand makes the cipher of the key. It allocates the key schedule, of 512 bytes.
func (h *half) expand(p *parameters) (err error) {
	key := h.key[:p.key]
	if p.gcm {
		block, err := aes.NewCipher(key)
		if err != nil {
			return err
		}
		h.gcm, err = cipher.NewGCM(block)
		return err
	}
	h.ccm, err = NewCCM(key, int(p.tag))
	return err
}

func (h *half) expanded() bool { return h.ccm != nil || h.gcm != nil }

func (h *half) rest() { h.ccm, h.gcm = nil, nil }

// Rest frees the expanded keys, of about 1 kB, of an association that is idle. The next authentic record expands them again and ends the
// rest; a record that is forged, or sealed meanwhile, expands one key for itself alone, so that no stranger can undo the rest.
func (a *Association) Rest() {
	a.read.rest()
	a.write.rest()
	a.resting = true
}

func (h *half) setCID(cid []byte) {
	h.cidN = uint8(copy(h.cid[:], cid))
	h.cidOn = len(cid) > 0
}

// forgedLimit is how many records may fail to open before the keys are spent. For
// GCM and CCM it is what RFC 9147 section 4.5.3 says: 2^36, and 2^23.5, rounded
// down. For CCM_8 that section has no number: it requires further safeguards
// against forgery, and for a limit that takes them into account. With a tag of 64
// bits 2^20 failures leave a chance of 2^-44 that one forgery has succeeded; the
// safeguard, a limit by source address, is engine's.
func (p *parameters) forgedLimit() uint64 {
	switch {
	case p.gcm:
		return 1 << 36
	case p.tag == 16:
		return 1 << 23
	}
	return 1 << 20
}

// Suite returns the cipher suite.
func (a *Association) Suite() Suite { return a.suite.suite }

// ReadCID returns the connection id the peer sends, empty if none. It points
// into the association.
func (a *Association) ReadCID() []byte { return a.read.cid[:a.read.cidN] }

// WriteCID returns the connection id we send, empty if none. It points into the
// association.
func (a *Association) WriteCID() []byte { return a.write.cid[:a.write.cidN] }

// Forged returns how many records failed to open.
func (a *Association) Forged() uint64 { return a.forged }

// Sent returns how many sequence numbers are used.
func (a *Association) Sent() uint64 { return a.next }

// Newest returns one more than the newest sequence received, 0 if none was.
func (a *Association) Newest() uint64 { return a.window.Newest() }

// Window returns the replay window.
func (a *Association) Window() Window { return a.window }

// Resume continues an association that another process has used: sent and forged are at least what its Sent and Forged have returned
// last, and window is what its Window has. Sequence numbers below sent are never used.
func (a *Association) Resume(sent, forged uint64, window Window) {
	a.next, a.forged, a.window = sent, forged, window
}

// Keys returns the keys, of the end that side is.
func (a *Association) Keys(side Side) Keys {
	client, server := &a.write, &a.read
	if side == Server {
		client, server = server, client
	}
	return Keys{ClientKey: client.key, ServerKey: server.key, ClientIV: client.iv, ServerIV: server.iv}
}

// Wipe overwrites the keys of an association that goes on elsewhere. Seal and Open refuse every record from now on.
func (a *Association) Wipe() {
	a.Rest()
	clear(a.read.key[:])
	clear(a.write.key[:])
	a.next, a.forged = maxSequence+1, a.suite.forgedLimit()
}

// PlaintextLimit returns what LimitPlaintext has set.
func (a *Association) PlaintextLimit() int { return int(a.limit) }

// LimitPlaintext sets the maximum length in bytes of what Seal encrypts in one record, as the peer has requested (RFC 8449
// section 4, RFC 6066 section 4). With a connection id that includes the byte of the inner type.
func (a *Association) LimitPlaintext(n int) { a.limit = uint16(min(n, MaxPlaintext)) }

// MaxPayload is the maximum length in bytes of a payload that Seal takes.
func (a *Association) MaxPayload() int {
	if a.write.cidOn {
		return a.maxInner() - 1
	}
	return a.maxInner()
}

// maxInner is the maximum length of what is encrypted. Without a limit of the peer's the inner type does not count.
func (a *Association) maxInner() int {
	if a.limit == MaxPlaintext && a.write.cidOn {
		return MaxPlaintext + 1
	}
	return int(a.limit)
}

// HeadRoom is what Seal needs in front of the payload, in bytes.
func (a *Association) HeadRoom() int {
	return HeaderLength + int(a.write.cidN) + explicitNonce
}

// TailRoom is what Seal needs behind the payload, in bytes.
func (a *Association) TailRoom() int { return 1 + int(a.suite.tag) }

// Seal turns the payload buf[start:start+n] into a record in place, with the
// next sequence number, and returns it, a part of buf. buf must have HeadRoom
// in front of start and TailRoom behind. With spent keys it seals alerts only.
func (a *Association) Seal(s *Scratch, typ ContentType, buf []byte, start, n int) ([]byte, error) {
	if a.next > maxSequence || (a.forged >= a.suite.forgedLimit() && typ != Alert) {
		return nil, ErrSpent
	}
	h := &a.write
	inner := n
	if h.cidOn {
		inner++
	}
	headRoom := a.HeadRoom()
	if inner > a.maxInner() || start < headRoom || len(buf)-start < inner+int(a.suite.tag) {
		return nil, ErrSize
	}
	if h.cidOn {
		buf[start+n] = byte(typ) // DTLSInnerPlaintext without padding
		typ = TLS12CID
	}
	if !h.expanded() {
		if h.expand(a.suite) != nil {
			return nil, ErrSpent // not for a key of the suite's length
		}
		if a.resting {
			defer h.rest()
		}
	}
	sequence := 1<<48 | a.next
	a.next++
	out := buf[start-headRoom : start+inner+int(a.suite.tag)]
	out[0] = byte(typ)
	out[1], out[2] = version12>>8, version12&0xff
	binary.BigEndian.PutUint64(out[3:], sequence)
	copy(out[11:], h.cid[:h.cidN])
	body := start - explicitNonce - (start - headRoom)
	binary.BigEndian.PutUint16(out[body-2:], uint16(explicitNonce+inner+int(a.suite.tag)))
	binary.BigEndian.PutUint64(out[body:], sequence)

	aad := h.prepare(s, sequence, typ, out[11:11+int(h.cidN)], inner, out[body:body+explicitNonce])
	data := out[headRoom:]
	if h.gcm != nil {
		h.gcm.Seal(data[:0], s.nonce[:], data[:inner], aad)
	} else {
		h.ccm.Seal(s, s.nonce[:], aad, data, inner)
	}
	return out, nil
}

// Open checks, verifies and decrypts r in place and returns the payload, a part
// of r.Body, and its type. newest says that no newer record has come, which is
// when RFC 9146 section 6 lets the peer's address change. Records of the wrong
// shape (with a connection id where none was negotiated, or without one; too
// short for a tag) are Broken.
func (a *Association) Open(s *Scratch, r *Record) (typ ContentType, payload []byte, newest bool, v Verdict) {
	if r.Epoch != 1 {
		return 0, nil, false, WrongEpoch
	}
	h := &a.read
	if (r.Type == TLS12CID) != h.cidOn || r.Version != version12 || len(r.Body) < explicitNonce+int(a.suite.tag) {
		return 0, nil, false, Broken
	}
	if !a.window.Check(r.Sequence) {
		return 0, nil, false, Replayed
	}
	if a.forged >= a.suite.forgedLimit() {
		return 0, nil, false, Spent
	}
	if !h.expanded() && h.expand(a.suite) != nil {
		return 0, nil, false, Broken // as in Seal
	}
	payload, ok := a.decrypt(s, r)
	if !ok {
		if a.resting {
			h.rest()
		}
		if a.forged++; a.forged >= a.suite.forgedLimit() {
			return 0, nil, false, Spent
		}
		return 0, nil, false, Forged
	}
	a.resting = false
	newest = a.window.Mark(r.Sequence)
	typ = r.Type
	if h.cidOn {
		// The inner type is the last byte that is not zero (RFC 9146 section 4).
		n := len(payload)
		for n > 0 && payload[n-1] == 0 {
			n--
		}
		if n == 0 {
			return 0, nil, newest, Broken
		}
		typ, payload = ContentType(payload[n-1]), payload[:n-1]
	}
	if len(payload) > MaxPlaintext {
		return 0, nil, newest, Broken
	}
	return typ, payload, newest, Opened
}

func (a *Association) decrypt(s *Scratch, r *Record) ([]byte, bool) {
	inner := len(r.Body) - explicitNonce - int(a.suite.tag)
	h := &a.read
	aad := h.prepare(s, 1<<48|r.Sequence, r.Type, r.CID, inner, r.Body[:explicitNonce])
	data := r.Body[explicitNonce:]
	if h.gcm != nil {
		out, err := h.gcm.Open(data[:0], s.nonce[:], data, aad)
		return out, err == nil
	}
	return h.ccm.Open(s, s.nonce[:], aad, data)
}

// prepare sets the nonce (RFC 6655 section 3) and returns the additional data:
// RFC 9146 section 5.3 with a connection id, RFC 5246 section 6.2.3.3 without.
func (h *half) prepare(s *Scratch, sequence uint64, typ ContentType, cid []byte, inner int, explicit []byte) []byte {
	copy(s.nonce[:], h.iv[:])
	copy(s.nonce[fixedIV:], explicit)
	aad := &s.aad
	if typ != TLS12CID {
		binary.BigEndian.PutUint64(aad[:], sequence)
		aad[8] = byte(typ)
		aad[9], aad[10] = version12>>8, version12&0xff
		binary.BigEndian.PutUint16(aad[11:], uint16(inner))
		return aad[:13]
	}
	binary.BigEndian.PutUint64(aad[:], 1<<64-1)
	aad[8] = byte(TLS12CID)
	aad[9] = byte(len(cid))
	aad[10] = byte(TLS12CID)
	aad[11], aad[12] = version12>>8, version12&0xff
	binary.BigEndian.PutUint64(aad[13:], sequence)
	n := 21 + copy(aad[21:], cid)
	binary.BigEndian.PutUint16(aad[n:], uint16(inner))
	return aad[:n+2]
}
