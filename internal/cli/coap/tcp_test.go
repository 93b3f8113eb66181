package coap

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/cli/coap/coaptest"
)

// Weir's server takes and gives several blocks in a message over TCP (RFC 8323 section 6), as `weir coap` asks it to.
func TestCoapBlocksOverTCP(t *testing.T) {
	s := coaptest.Start(t, 2, "--dtls", "127.0.0.1:0", "--listen-tcp", "127.0.0.1:0", "--plugtest")
	uri := s.Uris[1]
	body := strings.Repeat("weir", 2000)
	file, copied := filepath.Join(t.TempDir(), "body"), filepath.Join(t.TempDir(), "copy")
	clitest.Must(t, os.WriteFile(file, []byte(body), 0o600))
	for _, size := range []string{"1024", "3072", "7168"} {
		if _, code := clitest.Weir(t, "coap", "put", uri+"/large-update", "--file", file, "--content-format", "text", "--block-size", size); code != 0 {
			t.Fatalf("put: %d", code)
		}
		out, code := clitest.Weir(t, "coap", "get", uri+"/large-update", "--block-size", size, "--output", copied)
		got, err := os.ReadFile(copied)
		if code != 0 || err != nil || string(got) != body {
			t.Errorf("size %s: %d, %v, %d bytes\n%s", size, code, err, len(got), out)
		}
	}
	if out, code := clitest.Weir(t, "coap", "get", "coap://127.0.0.1/x", "--block-size", "2048"); code != 2 || !strings.Contains(out, "write coap+tcp://") {
		t.Errorf("%d %s", code, out)
	}
}
