package check

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/cli/clitest"
)

// A DNS name is looked up: its addresses are listed, and are the backends. A name without an answer is a note, no error, and takes no
// longer than the bound.
func TestCheckNames(t *testing.T) {
	file := filepath.Join(t.TempDir(), "w.yaml")
	clitest.Must(t, os.WriteFile(file, []byte(`services:
- name: web
  vips: [{address: 192.0.2.1, protocol: tcp, port: 80}]
  backends:
  - {name: own, host: LOCALHOST, port: 8080}
  - {name: none, host: no-such-name.invalid}
`), 0o600))
	began := time.Now()
	out, code := clitest.Weir(t, "check", file, "--json")
	if took := time.Since(began); took > 2*resolveTimeout {
		t.Errorf("it took %s", took)
	}
	var result checkResult
	if err := clitest.ReadStrictly([]byte(out), &result); err != nil || code != 0 || !result.OK || len(result.Names) != 2 {
		t.Fatalf("exit code %d, %v: %s", code, err, out)
	}
	own, none := result.Names[0], result.Names[1]
	if own.Name != "localhost" || len(own.Addresses) == 0 || own.Error != "" || none.Name != "no-such-name.invalid" || none.Error == "" || none.Addresses != nil {
		t.Errorf("%+v", result.Names)
	}
	if b := result.Services[0].Backends; len(b) != 1 || b[0].Name != "own:127.0.0.1" {
		t.Errorf("backends %+v", b)
	}
	out, code = clitest.Weir(t, "check", file)
	if code != 0 || !strings.Contains(out, "no-such-name.invalid  note: nothing now, so no backend until it does: ") || !strings.Contains(out, "localhost             127.0.0.1") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}
