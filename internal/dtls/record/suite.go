package record

import "slices"

// Suite is a cipher suite's code point (IANA TLS Cipher Suites).
type Suite uint16

// Suites this package can protect records with.
const (
	PSKWithAES128GCMSHA256        Suite = 0x00a8 // RFC 5487
	PSKWithAES256GCMSHA384        Suite = 0x00a9 // RFC 5487
	ECDHEECDSAWithAES128GCMSHA256 Suite = 0xc02b // RFC 5289
	ECDHEECDSAWithAES256GCMSHA384 Suite = 0xc02c // RFC 5289
	ECDHERSAWithAES128GCMSHA256   Suite = 0xc02f // RFC 5289
	ECDHERSAWithAES256GCMSHA384   Suite = 0xc030 // RFC 5289
	PSKWithAES128CCM              Suite = 0xc0a4 // RFC 6655
	PSKWithAES256CCM              Suite = 0xc0a5 // RFC 6655
	PSKWithAES128CCM8             Suite = 0xc0a8 // RFC 6655
	PSKWithAES256CCM8             Suite = 0xc0a9 // RFC 6655
	ECDHEECDSAWithAES128CCM       Suite = 0xc0ac // RFC 7251
	ECDHEECDSAWithAES256CCM       Suite = 0xc0ad // RFC 7251
	ECDHEECDSAWithAES128CCM8      Suite = 0xc0ae // RFC 7251
	ECDHEECDSAWithAES256CCM8      Suite = 0xc0af // RFC 7251
	ECDHEPSKWithAES128GCMSHA256   Suite = 0xd001 // RFC 8442
	ECDHEPSKWithAES256GCMSHA384   Suite = 0xd002 // RFC 8442
	ECDHEPSKWithAES128CCM8SHA256  Suite = 0xd003 // RFC 8442
	ECDHEPSKWithAES128CCMSHA256   Suite = 0xd005 // RFC 8442
)

// KeyExchange is how the two sides of a suite agree on keys, and prove who they are.
type KeyExchange uint8

// Key exchanges.
const (
	PSK        KeyExchange = iota // RFC 4279 section 2
	ECDHEPSK                      // RFC 5489 section 2
	ECDHEECDSA                    // RFC 8422 section 2: with a certificate, whose key is for ECDSA or Ed25519, or, see Suite.RSA, for RSA
)

// parameters are what a suite stands for. Its hash is SHA-384 where sha384, else SHA-256.
type parameters struct {
	suite    Suite
	name     string
	exchange KeyExchange
	key, tag uint8 // lengths in bytes
	gcm      bool
	sha384   bool
}

// suites are in the order of preference of DefaultSuites: 128-bit keys before 256-bit ones, CCM_8 first, as RFC 7925
// section 4 requires.
var suites = [...]parameters{
	{PSKWithAES128CCM8, "TLS_PSK_WITH_AES_128_CCM_8", PSK, 16, 8, false, false},
	{PSKWithAES128CCM, "TLS_PSK_WITH_AES_128_CCM", PSK, 16, 16, false, false},
	{PSKWithAES128GCMSHA256, "TLS_PSK_WITH_AES_128_GCM_SHA256", PSK, 16, 16, true, false},
	{ECDHEPSKWithAES128CCM8SHA256, "TLS_ECDHE_PSK_WITH_AES_128_CCM_8_SHA256", ECDHEPSK, 16, 8, false, false},
	{ECDHEPSKWithAES128CCMSHA256, "TLS_ECDHE_PSK_WITH_AES_128_CCM_SHA256", ECDHEPSK, 16, 16, false, false},
	{ECDHEPSKWithAES128GCMSHA256, "TLS_ECDHE_PSK_WITH_AES_128_GCM_SHA256", ECDHEPSK, 16, 16, true, false},
	{ECDHEECDSAWithAES128CCM8, "TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8", ECDHEECDSA, 16, 8, false, false},
	{ECDHEECDSAWithAES128CCM, "TLS_ECDHE_ECDSA_WITH_AES_128_CCM", ECDHEECDSA, 16, 16, false, false},
	{ECDHEECDSAWithAES128GCMSHA256, "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", ECDHEECDSA, 16, 16, true, false},
	{PSKWithAES256CCM8, "TLS_PSK_WITH_AES_256_CCM_8", PSK, 32, 8, false, false},
	{PSKWithAES256CCM, "TLS_PSK_WITH_AES_256_CCM", PSK, 32, 16, false, false},
	{PSKWithAES256GCMSHA384, "TLS_PSK_WITH_AES_256_GCM_SHA384", PSK, 32, 16, true, true},
	{ECDHEPSKWithAES256GCMSHA384, "TLS_ECDHE_PSK_WITH_AES_256_GCM_SHA384", ECDHEPSK, 32, 16, true, true},
	{ECDHEECDSAWithAES256CCM8, "TLS_ECDHE_ECDSA_WITH_AES_256_CCM_8", ECDHEECDSA, 32, 8, false, false},
	{ECDHEECDSAWithAES256CCM, "TLS_ECDHE_ECDSA_WITH_AES_256_CCM", ECDHEECDSA, 32, 16, false, false},
	{ECDHEECDSAWithAES256GCMSHA384, "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", ECDHEECDSA, 32, 16, true, true},
	{ECDHERSAWithAES128GCMSHA256, "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", ECDHEECDSA, 16, 16, true, false},
	{ECDHERSAWithAES256GCMSHA384, "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", ECDHEECDSA, 32, 16, true, true},
}

func (s Suite) parameters() *parameters {
	for i := range suites {
		if suites[i].suite == s {
			return &suites[i]
		}
	}
	return &parameters{name: "unknown"}
}

// Suites returns every known suite, in the default order of preference.
func Suites() []Suite {
	all := make([]Suite, 0, len(suites))
	for i := range suites {
		all = append(all, suites[i].suite)
	}
	return all
}

// CertificateSuites returns the suites with certificates, the cheapest first: AES-GCM, which processors have instructions for.
func CertificateSuites() []Suite {
	return []Suite{
		ECDHEECDSAWithAES128GCMSHA256, ECDHERSAWithAES128GCMSHA256, ECDHEECDSAWithAES256GCMSHA384, ECDHERSAWithAES256GCMSHA384,
		ECDHEECDSAWithAES128CCM, ECDHEECDSAWithAES128CCM8, ECDHEECDSAWithAES256CCM, ECDHEECDSAWithAES256CCM8,
	}
}

// SuiteNamed returns the suite with an IANA name.
func SuiteNamed(name string) (Suite, bool) {
	i := slices.IndexFunc(suites[:], func(p parameters) bool { return p.name == name })
	if i < 0 {
		return 0, false
	}
	return suites[i].suite, true
}

// String returns the IANA name.
func (s Suite) String() string { return s.parameters().name }

// Known reports whether records can be protected with s.
func (s Suite) Known() bool { return s.parameters().tag != 0 }

// KeyExchange returns the key exchange of a known suite.
func (s Suite) KeyExchange() KeyExchange { return s.parameters().exchange }

// RSA reports whether the server's certificate has an RSA key.
func (s Suite) RSA() bool {
	return s == ECDHERSAWithAES128GCMSHA256 || s == ECDHERSAWithAES256GCMSHA384
}

// SHA384 reports whether the suite's pseudorandom function uses SHA-384 instead of SHA-256.
func (s Suite) SHA384() bool { return s.parameters().sha384 }

// KeysLength returns the length in bytes of the suite's key block (RFC 5246 section 6.3): two keys, then two fixed IVs.
func (s Suite) KeysLength() int { return 2 * (s.KeyLength() + s.IVLength()) }

// KeyLength returns the length in bytes of a key of a known suite.
func (s Suite) KeyLength() int { return int(s.parameters().key) }

// IVLength returns the length in bytes of the part of the nonce that is secret (RFC 5288 section 3, RFC 6655 section 3).
func (s Suite) IVLength() int { return fixedIV }
