package clitest

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// FreeTCP is an address that was free a moment ago, outside of what the kernel gives away.
func FreeTCP(t *testing.T) netip.AddrPort {
	t.Helper()
	return netlabtest.UDPAddress(t) // of both protocols but for 127.255.255.254
}

// TestToken is what TokenFile holds.
const TestToken = "0123456789abcdef"

// TokenFile is a file for --admin-token-file.
func TokenFile(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(TestToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// LBConfig is a service with one VIP and these backends.
func LBConfig(vip string, backends ...string) string {
	text := "services:\n- name: s\n  vips: [{" + addressKeys(vip) + ", protocol: udp}]\n  backends:\n"
	for i, at := range backends {
		text += fmt.Sprintf("  - {name: b%d, %s}\n", i, addressKeys(at))
	}
	return text
}

func addressKeys(at string) string {
	host, port, _ := strings.Cut(at, ":")
	return "address: " + host + ", port: " + port
}

// ReadPage is the text of a file.
func ReadPage(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
