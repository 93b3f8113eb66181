package bench

import (
	"encoding/binary"
	"hash/maphash"
)

// nonces is an audit of DTLS records with connection ids: of which session, in which direction and with which epoch and sequence number each
// was protected. Two different records with the same of these were protected with the same key and nonce, which gives away the keys of
// AES-GCM (RFC 5116 section 5.1.1) and weakens AES-CCM. The same record seen again, on another link or repeated by the network, is none.
type nonces struct {
	seed     maphash.Seed
	sessions map[string]map[uint64]*noncePage // by direction, connection id and epoch; then by sequence number

	records   uint64 // different ones
	again     uint64 // the same bytes again
	reused    uint64 // other bytes under the same nonce
	malformed uint64 // datagrams that are no records to their end
	example   string // the connection id of the first one reused
}

// noncePage is the digests of the records of 256 sequence numbers; 0: not seen.
type noncePage [256]uint32

func newNonces() *nonces {
	return &nonces{seed: maphash.MakeSeed(), sessions: map[string]map[uint64]*noncePage{}}
}

// What a record looks like (RFC 9146 section 4).
const (
	recordHeader  = 13 // without connection id
	recordWithCID = 25
	recordLowest  = 20 // content types
	recordHighest = 25
)

// Lengths of the connection ids: a server's by default, and what the clients of the load choose.
const (
	chaosServerCID = 6
	chaosClientCID = 8
)

// datagram takes one datagram with records, or several of them back to back, as segmentation offload shows them. toServer says whose
// connection ids they carry.
func (a *nonces) datagram(b []byte, toServer bool) {
	for len(b) > 0 {
		n := a.record(b, toServer)
		if n == 0 {
			a.malformed++
			return
		}
		b = b[n:]
	}
}

// frames takes what nodes send each other: frames with records (docs/coap-cluster.md), or records of their own session.
func (a *nonces) frames(b []byte) {
	const ping, pong, frameOut, frameIn, frameRelay, macLength = 61, 60, 62, 63, 59, 8
	toServer := false
	for len(b) > 0 {
		switch b[0] {
		case ping, pong:
			return
		case frameOut, frameIn, frameRelay:
			if len(b) < 4 || len(b) < 4+int(b[3])+macLength {
				a.malformed++
				return
			}
			toServer = b[0] != frameOut
			b = b[4+int(b[3])+macLength:]
			continue
		case recordWithCID:
		default:
			return // of the nodes' own session
		}
		n := a.record(b, toServer)
		if n == 0 {
			a.malformed++
			return
		}
		b = b[n:]
	}
}

// record takes the first record and returns its length; 0: it is none.
func (a *nonces) record(b []byte, toServer bool) int {
	cid, direction := 0, byte(0)
	if len(b) < recordHeader || b[0] < recordLowest || b[0] > recordHighest {
		return 0
	}
	if b[0] == recordWithCID {
		if cid = chaosClientCID; toServer {
			cid, direction = chaosServerCID, 1
		}
	}
	if len(b) < recordHeader+cid {
		return 0
	}
	end := recordHeader + cid + int(binary.BigEndian.Uint16(b[recordHeader+cid-2:]))
	if end > len(b) {
		return 0
	}
	if b[0] == recordWithCID {
		a.enter(direction, b[3:5], binary.BigEndian.Uint64(b[3:])&(1<<48-1), b[11:11+cid], b[:end])
	}
	return end
}

func (a *nonces) enter(direction byte, epoch []byte, sequence uint64, cid, record []byte) {
	key := append(append(append(make([]byte, 0, 16), direction), epoch...), cid...)
	pages := a.sessions[string(key)]
	if pages == nil {
		pages = map[uint64]*noncePage{}
		a.sessions[string(key)] = pages
	}
	page := pages[sequence>>8]
	if page == nil {
		page = new(noncePage)
		pages[sequence>>8] = page
	}
	digest := uint32(maphash.Bytes(a.seed, record)) | 1
	switch seen := &page[sequence&255]; *seen {
	case 0:
		*seen = digest
		a.records++
	case digest:
		a.again++
	default:
		a.reused++
		if a.example == "" {
			a.example = string(cid)
		}
	}
}
