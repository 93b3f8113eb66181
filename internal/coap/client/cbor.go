package client

import "github.com/fxamacker/cbor/v2"

// Bounds of a CBOR document to show: nesting, bytes (a bignum of them all takes about a second to write in decimal), and bytes of text.
const (
	maxNesting    = 32
	maxDocument   = 1 << 20
	maxDiagnostic = 4 << 20
)

// diagnosis is nil only if an option above is out of the library's range, which every test would show.
var diagnosis, _ = cbor.DiagOptions{MaxNestedLevels: maxNesting, MaxArrayElements: maxDocument, MaxMapPairs: maxDocument}.DiagMode()

// Diagnostic renders one CBOR item in diagnostic notation (RFC 8949 section 8), in ASCII. ok is false where the bytes are no
// well-formed item, nest too deeply or become too long.
func Diagnostic(item []byte) (text string, ok bool) {
	if len(item) > maxDocument {
		return "", false
	}
	text, err := diagnosis.Diagnose(item)
	return text, err == nil && len(text) <= maxDiagnostic
}
