// Package addresstext says what is wrong with text that should be an IP address.
package addresstext

import (
	"fmt"
	"net/netip"
	"strings"
)

// Error is the error for text that is not an address (or, with what "prefix", not a prefix): what it looks like and what to
// write. usual is the remedy for text that looks like nothing known.
func Error(what, text, usual string) error {
	return fmt.Errorf("%q is not %s; %s", text, what, remedy(text, usual))
}

func remedy(text, usual string) string {
	inner := strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")
	if _, err := netip.ParseAddr(inner); err == nil && inner != text {
		return "write " + inner + ", without brackets"
	}
	if at, err := netip.ParseAddrPort(text); err == nil {
		return fmt.Sprintf("write %s here, and %d as the port, which is a key of its own", at.Addr(), at.Port())
	}
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() != "" {
		return "write it without the zone %" + a.Zone()
	}
	if strings.Contains(text, "://") {
		return "write the address alone, without protocol and port"
	}
	if isName(text) {
		return "names are not looked up: " + usual
	}
	return usual
}

// isName says whether text can be a host name and cannot be meant as an address.
func isName(text string) bool {
	letters := false
	for _, r := range text {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z':
			letters = true
		case r >= '0' && r <= '9', r == '-', r == '.', r == '_':
		default:
			return false
		}
	}
	return letters
}
