package addresstext

import (
	"strconv"
	"strings"
)

// IsName reports whether the text is a DNS name (RFC 1123 letters, and the underscore that services use), and not a
// mistyped address.
func IsName(text string) bool {
	text = strings.TrimSuffix(text, ".")
	if text == "" || len(text) > 253 {
		return false
	}
	labels := strings.Split(text, ".")
	for _, label := range labels {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for _, c := range []byte(label) {
			if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_') {
				return false
			}
		}
	}
	_, err := strconv.ParseUint(labels[len(labels)-1], 10, 64)
	return err != nil // a top-level domain is not a number (RFC 3696 §2): 10.0.0.300 and 1000 are not names
}
