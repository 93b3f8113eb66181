package handshake

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/binary"
	"errors"
	"io"
)

// Signature schemes (RFC 8446 section 4.2.3). With DTLS 1.2 the first two name a hash, and any curve may go with it
// (RFC 5246 section 7.4.1.4.1).
const (
	ecdsaSHA256 = 0x0403
	ecdsaSHA384 = 0x0503
	ed25519Pure = 0x0807
	rsaPSS      = 0x0804 // with SHA-256
	rsaPKCS1    = 0x0401 // likewise
)

// offeredSchemes are what we say we verify.
var offeredSchemes = []byte{4, 3, 5, 3, 8, 7, 8, 4, 4, 1}

var errSignature = errors.New("the signature is wrong")

// chooseScheme returns the scheme to sign with for a peer that sent these schemes. nil stands for a peer without the
// extension: RFC 5246 makes that SHA-1, which no one wants; constrained clients that leave it out use SHA-256.
func chooseScheme(public crypto.PublicKey, offered []byte) (uint16, bool) {
	if offered == nil {
		offered = []byte{ecdsaSHA256 >> 8, ecdsaSHA256 & 0xff}
	}
	var candidates []uint16
	switch k := public.(type) {
	case *ecdsa.PublicKey:
		candidates = []uint16{ecdsaSHA256, ecdsaSHA384}
		if k.Curve == elliptic.P384() {
			candidates = []uint16{ecdsaSHA384, ecdsaSHA256}
		}
	case ed25519.PublicKey:
		candidates = []uint16{ed25519Pure}
	case *rsa.PublicKey:
		candidates = []uint16{rsaPSS, rsaPKCS1}
	}
	for _, c := range candidates {
		if contains16(offered, c) {
			return c, true
		}
	}
	return 0, false
}

// digest returns what a scheme signs of a message, and the hash that made it.
func digest(scheme uint16, message []byte) ([]byte, crypto.Hash) {
	switch scheme {
	case ecdsaSHA256, rsaPSS, rsaPKCS1:
		sum := sha256.Sum256(message)
		return sum[:], crypto.SHA256
	case ecdsaSHA384:
		sum := sha512.Sum384(message)
		return sum[:], crypto.SHA384
	}
	return message, 0
}

// appendSigned appends the scheme and the signature of message (RFC 5246 section 4.7).
func appendSigned(dst []byte, key crypto.Signer, scheme uint16, message []byte, random io.Reader) ([]byte, error) {
	d, hash := digest(scheme, message)
	options := crypto.SignerOpts(hash)
	if scheme == rsaPSS {
		options = &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: hash}
	}
	signature, err := key.Sign(random, d, options)
	if err != nil {
		return dst, err
	}
	return appendVector16(binary.BigEndian.AppendUint16(dst, scheme), signature), nil
}

// verifySigned checks the scheme and signature that c reads next against message.
func verifySigned(c *cursor, public crypto.PublicKey, message []byte) error {
	scheme := uint16(c.uint16())
	signature := c.vector16()
	if !c.done() {
		return errMalformed
	}
	d, hash := digest(scheme, message)
	ok := false
	switch k := public.(type) {
	case *ecdsa.PublicKey:
		ok = (scheme == ecdsaSHA256 || scheme == ecdsaSHA384) && ecdsa.VerifyASN1(k, d, signature)
	case ed25519.PublicKey:
		ok = scheme == ed25519Pure && ed25519.Verify(k, d, signature)
	case *rsa.PublicKey:
		switch scheme {
		case rsaPSS:
			ok = rsa.VerifyPSS(k, hash, d, signature, &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash}) == nil
		case rsaPKCS1:
			ok = rsa.VerifyPKCS1v15(k, hash, d, signature) == nil
		}
	}
	if !ok {
		return errSignature
	}
	return nil
}
