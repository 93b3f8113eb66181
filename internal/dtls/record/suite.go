package record

// Suite is a cipher suite's code point (IANA TLS Cipher Suites).
type Suite uint16

// Suites this package can protect records with.
const (
	PSKWithAES128GCMSHA256 Suite = 0x00a8 // RFC 5487
	PSKWithAES128CCM       Suite = 0xc0a4 // RFC 6655
	PSKWithAES128CCM8      Suite = 0xc0a8 // RFC 6655
)

// String returns the IANA name.
func (s Suite) String() string {
	switch s {
	case PSKWithAES128GCMSHA256:
		return "TLS_PSK_WITH_AES_128_GCM_SHA256"
	case PSKWithAES128CCM:
		return "TLS_PSK_WITH_AES_128_CCM"
	case PSKWithAES128CCM8:
		return "TLS_PSK_WITH_AES_128_CCM_8"
	}
	return "unknown"
}

// Known reports whether records can be protected with s.
func (s Suite) Known() bool { return s.tagLength() != 0 }

// tagLength is the length of the authentication tag in bytes, 0 if s is not known.
func (s Suite) tagLength() int {
	switch s {
	case PSKWithAES128GCMSHA256, PSKWithAES128CCM:
		return 16
	case PSKWithAES128CCM8:
		return 8
	}
	return 0
}
