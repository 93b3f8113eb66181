package handshake

import (
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/binary"
	"io"
	"slices"
)

// Group is a group of the ephemeral key exchange (IANA TLS Supported Groups).
type Group uint16

// Groups this package knows.
const (
	P256   Group = 23
	P384   Group = 24
	X25519 Group = 29
)

// DefaultGroups are all groups, P-256 first, as RFC 7925 section 9 wants.
func DefaultGroups() []Group { return []Group{P256, X25519, P384} }

// curve returns the group's curve, or nil if the group is not known.
func (g Group) curve() ecdh.Curve {
	switch g {
	case P256:
		return ecdh.P256()
	case P384:
		return ecdh.P384()
	case X25519:
		return ecdh.X25519()
	}
	return nil
}

// generate makes a key pair.
func (g Group) generate(r io.Reader) (*ecdh.PrivateKey, error) { return g.curve().GenerateKey(r) }

// chooseGroup returns our first group that the peer supports too. offered holds two bytes for each; nil stands for a peer
// that did not say: it takes P-256 (RFC 8422 section 4).
func chooseGroup(ours []Group, offered []byte) (Group, bool) {
	for _, g := range ours {
		if offered == nil && g == P256 || contains16(offered, uint16(g)) {
			return g, true
		}
	}
	return 0, false
}

// contains16 reports whether a list of two bytes each contains v.
func contains16(list []byte, v uint16) bool {
	for ; len(list) > 1; list = list[2:] {
		if binary.BigEndian.Uint16(list) == v {
			return true
		}
	}
	return false
}

// uncompressed reports whether a peer that sent these point formats can read ours (RFC 8422 section 5.1.2).
func uncompressed(formats []byte) bool { return formats == nil || slices.Contains(formats, 0) }

// groupOfKey returns the group that a peer must support to verify signatures of an ECDSA key; ok is false for keys on other
// curves, and for RSA keys of less than 2048 bits or more than maxRSA. Ed25519 and RSA keys need none.
func groupOfKey(public any) (g Group, needed, ok bool) {
	switch k := public.(type) {
	case *ecdsa.PublicKey:
		switch k.Curve {
		case elliptic.P256():
			return P256, true, true
		case elliptic.P384():
			return P384, true, true
		}
	case ed25519.PublicKey:
		return 0, false, true
	case *rsa.PublicKey:
		return 0, false, k.N.BitLen() >= minRSA && k.N.BitLen() <= maxRSA
	}
	return 0, false, false
}
