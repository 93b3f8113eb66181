package allocation

import (
	"encoding/binary"
	"net/netip"

	"github.com/pion/stun/v4"
)

// exchange is one request with the answer under construction.
type exchange struct {
	t      *Table
	policy *Policy
	m      message
	path   Path
	now    int64
	out    []byte
	start  int // offset of the answer in out
	cred   credential
	proven bool   // the client has shown that it receives at its address
	realm  string // the realm in the request's key
}

// Request handles one STUN message of a client, other than Send indications and ConnectionBind requests, and appends
// the answer, if there is one, to out. It neither changes nor retains msg.
func (t *Table) Request(p Path, msg, out []byte, now int64) (answer []byte, r Reason) {
	x, r := t.begin(p, msg, out, now)
	if r != OK {
		return out, r
	}
	if x.m.class != stun.ClassRequest {
		if x.m.class == stun.ClassIndication && x.m.method == stun.MethodBinding {
			return out, OK // keeps a NAT open (RFC 8489, section 6.3.2)
		}
		return out, Unexpected
	}
	switch x.m.method {
	case stun.MethodBinding:
		r = x.binding()
	case stun.MethodAllocate, stun.MethodRefresh, stun.MethodCreatePermission, stun.MethodChannelBind, stun.MethodConnect:
		r = x.authenticated()
	case stun.MethodConnectionBind:
		r = x.refuse(BadRequest)
	default:
		r = Unexpected
	}
	return x.out, r
}

// begin parses a message into the table's own exchange, so that nothing is allocated.
func (t *Table) begin(p Path, msg, out []byte, now int64) (*exchange, Reason) {
	m, r := parse(msg)
	x := &t.exchange
	*x = exchange{t: t, policy: t.shared.Policy(), m: m, path: p, proven: p.Transport != UDP, now: now, out: out, start: len(out)}
	return x, r
}

// binding answers a Binding request (RFC 8489, section 12) with the client's address as the server sees it.
func (x *exchange) binding() Reason {
	if x.unknown() {
		return x.refuse(UnknownAttribute)
	}
	if !x.t.shared.rates.allow(bindings, x.path.Client.Addr(), x.proven, x.now) {
		return RateLimited
	}
	x.open(stun.ClassSuccessResponse)
	x.address(stun.AttrXORMappedAddress, x.path.Client)
	if !x.amplifies(attributeHeader + len(x.policy.Software) + Padding(len(x.policy.Software)) + x.sealSize()) {
		x.software()
	}
	x.seal()
	return x.unlessAmplified(OK)
}

// authenticated handles the requests that need credentials, in the order of RFC 8489, section 9.2.4 and RFC 8656,
// section 5.
func (x *exchange) authenticated() Reason {
	if x.policy.Auth.Mode == AuthNone {
		return x.refuse(BadRequest)
	}
	if r := x.authenticate(); r != OK {
		x.cred = credential{}
		return x.refuse(r)
	}
	if x.unknown() {
		return x.fail(UnknownAttribute)
	}
	a := x.t.Find(x.path)
	if x.m.method == stun.MethodAllocate {
		return x.allocate(a)
	}
	if a == nil {
		return x.fail(NoAllocation)
	}
	if a.User != x.cred.user {
		return x.fail(WrongCredentials)
	}
	switch x.m.method {
	case stun.MethodRefresh:
		return x.refresh(a)
	case stun.MethodCreatePermission:
		return x.createPermission(a)
	case stun.MethodChannelBind:
		return x.channelBind(a)
	default:
		return x.connect(a)
	}
}

// unknown reports whether the request has comprehension-required attributes that this server does not know.
func (x *exchange) unknown() bool {
	x.t.unknown = x.m.unknown(x.t.unknown[:0])
	return len(x.t.unknown) > 0
}

// refuse answers a request of an unauthenticated sender with an error. The answer is rate limited, and over UDP at most three times
// as long as the request, because the source address may be forged. If the whole answer does not fit, first the reason phrase is omitted, then
// the short form of the nonce is used, then FINGERPRINT is omitted. The answer to a request of 20 bytes has space for a realm of 16; with a longer realm
// the answer is 400 without a realm.
func (x *exchange) refuse(r Reason) Reason {
	if !x.t.shared.rates.allow(challenges, x.path.Client.Addr(), x.proven, x.now) {
		return RateLimited
	}
	nonce := nonceSize
	x.error(r, true)
	if x.amplifies(x.challengeSize(r, nonce)) {
		x.error(r, false)
	}
	if x.amplifies(x.challengeSize(r, nonce)) {
		nonce = shortNonceSize
	}
	if x.amplifies(x.challengeSize(r, nonce)) {
		x.m.fingerprint = false
	}
	if x.amplifies(x.challengeSize(r, nonce)) {
		r = BadRequest
		x.error(r, false)
	}
	if x.challenges(r) {
		x.challenge(nonce)
	}
	x.seal()
	return x.unlessAmplified(r)
}

func (x *exchange) challenges(r Reason) bool { return r.Code() == 401 || r == StaleNonce }

// challengeSize is the number of bytes that challenge (if r requires it) and seal will add.
func (x *exchange) challengeSize(r Reason, nonce int) int {
	size := x.sealSize()
	if x.challenges(r) {
		size += 2*attributeHeader + len(x.policy.Realm) + Padding(len(x.policy.Realm)) + nonce
	}
	return size
}

// challenge adds what the client needs to authenticate. It offers the newer algorithms only if they fit.
func (x *exchange) challenge(nonceLength int) {
	features := x.policy.Auth.SHA256
	if features {
		size := 4*attributeHeader + len(x.policy.Realm) + 3 + len(nonceCookie) + len(nonceFeatures) + nonceSize + 3 + 8
		features = !x.amplifies(size + x.sealSize())
	}
	x.attribute(stun.AttrRealm, []byte(x.policy.Realm))
	at := len(x.out)
	x.attribute(stun.AttrNonce, nil)
	if nonceLength == shortNonceSize {
		x.out = x.t.macs.appendShortNonce(x.out, x.policy.NonceKeys, x.path.Client.Addr(), x.now)
	} else {
		x.out = x.t.macs.appendNonce(x.out, x.policy.NonceKeys, x.path.Client.Addr(), x.now, features)
	}
	size := len(x.out) - at - attributeHeader
	binary.BigEndian.PutUint16(x.out[at+2:], uint16(size))
	x.pad(size)
	if features {
		x.attribute(stun.AttrPasswordAlgorithms, passwordAlgorithms())
	}
}

// fail answers an authenticated client with an error.
func (x *exchange) fail(r Reason) Reason {
	x.error(r, true)
	if r == TryAlternate {
		x.out = appendAddress(x.out, stun.AttrAlternateServer, x.policy.Alternate)
	}
	x.software()
	x.seal()
	return r
}

// succeed completes a success answer that was begun with open.
func (x *exchange) succeed() Reason {
	x.software()
	x.seal()
	return OK
}

// amplifies reports whether the answer with more additional bytes would be larger than three times the request of an
// unproven client.
func (x *exchange) amplifies(more int) bool {
	return x.path.Transport == UDP && !x.cred.valid && len(x.out)-x.start+more > 3*len(x.m.raw)
}

func (x *exchange) unlessAmplified(r Reason) Reason {
	if x.amplifies(0) {
		x.out = x.out[:x.start]
		return Amplifies
	}
	return r
}

// open begins an answer of a class.
func (x *exchange) open(class stun.MessageClass) {
	kind := stun.NewType(x.m.method, class).Value()
	x.out = appendHeader(x.out[:x.start], kind, 0, x.m.id())
}

func (x *exchange) error(r Reason, phrase bool) {
	x.open(stun.ClassErrorResponse)
	text := r.text()
	x.out = appendErrorCode(x.out, stun.AttrErrorCode, 0, text.code, text.phrase, phrase)
	if r == UnknownAttribute {
		x.out = binary.BigEndian.AppendUint16(x.out, uint16(stun.AttrUnknownAttributes))
		x.out = binary.BigEndian.AppendUint16(x.out, uint16(2*len(x.t.unknown)))
		for _, kind := range x.t.unknown {
			x.out = binary.BigEndian.AppendUint16(x.out, uint16(kind))
		}
		x.pad(2 * len(x.t.unknown))
	}
}

// appendErrorCode appends ERROR-CODE, or ADDRESS-ERROR-CODE with its family (RFC 8489, section 14.8; 8656, 18.12).
func appendErrorCode(dst []byte, kind stun.AttrType, family byte, code int, phrase string, whole bool) []byte {
	if !whole {
		phrase = ""
	}
	dst = binary.BigEndian.AppendUint16(dst, uint16(kind))
	dst = binary.BigEndian.AppendUint16(dst, uint16(4+len(phrase)))
	dst = append(append(dst, family, 0, byte(code/100), byte(code%100)), phrase...)
	return append(dst, 0, 0, 0)[:len(dst)+Padding(len(phrase))]
}

// appendAddress appends an address that is not XORed.
func appendAddress(dst []byte, kind stun.AttrType, a netip.AddrPort) []byte {
	var zero [headerSize]byte
	at := len(dst)
	dst = appendXORAddress(dst, kind, a, zero[:])
	binary.BigEndian.PutUint16(dst[at+6:], a.Port())
	return dst
}

func (x *exchange) attribute(kind stun.AttrType, value []byte) {
	x.out = binary.BigEndian.AppendUint16(x.out, uint16(kind))
	x.out = binary.BigEndian.AppendUint16(x.out, uint16(len(value)))
	x.out = append(x.out, value...)
	x.pad(len(value))
}

func (x *exchange) number(kind stun.AttrType, n uint32) { x.out = appendNumber(x.out, kind, n) }

func appendNumber(dst []byte, kind stun.AttrType, n uint32) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(kind))
	dst = binary.BigEndian.AppendUint16(dst, 4)
	return binary.BigEndian.AppendUint32(dst, n)
}

func (x *exchange) address(kind stun.AttrType, a netip.AddrPort) {
	x.out = appendXORAddress(x.out, kind, a, x.m.raw[:headerSize])
}

func (x *exchange) pad(size int) { x.out = append(x.out, 0, 0, 0)[:len(x.out)+Padding(size)] }

func (x *exchange) software() {
	if x.policy.Software != "" {
		x.attribute(stun.AttrSoftware, []byte(x.policy.Software))
	}
}

// sealSize is the number of bytes that seal will add.
func (x *exchange) sealSize() int {
	size := 0
	if x.cred.valid {
		size += attributeHeader + sha256Size
	}
	if x.m.fingerprint {
		size += attributeHeader + 4
	}
	return size
}

// seal completes the answer: it adds integrity if the client is authenticated, and FINGERPRINT if the request had
// one.
func (x *exchange) seal() {
	x.out = x.t.macs.seal(x.out, x.start, &x.cred, x.m.fingerprint)
}

// seal completes the message that begins at start.
func (c *macs) seal(out []byte, start int, cred *credential, fingerprint bool) []byte {
	at := len(out) - start
	switch {
	case cred.valid && cred.sha256:
		sum := c.integrity(c.sha256, cred.key.slice(), out[start:], at, sha256Size)
		out = binary.BigEndian.AppendUint16(out, uint16(stun.AttrMessageIntegritySHA256))
		out = append(binary.BigEndian.AppendUint16(out, sha256Size), sum...)
	case cred.valid:
		sum := c.integrity(c.sha1, cred.key.slice(), out[start:], at, sha1Size)
		out = binary.BigEndian.AppendUint16(out, uint16(stun.AttrMessageIntegrity))
		out = append(binary.BigEndian.AppendUint16(out, sha1Size), sum...)
	}
	if fingerprint {
		binary.BigEndian.PutUint16(out[start+2:], uint16(len(out)-start-headerSize+8))
		out = appendFingerprint(out, start)
	}
	binary.BigEndian.PutUint16(out[start+2:], uint16(len(out)-start-headerSize))
	return out
}
