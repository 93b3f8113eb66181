package privilege

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMissingCapabilitiesAreNamed(t *testing.T) {
	all := uint64(1)<<unix.CAP_NET_BIND_SERVICE | 1<<unix.CAP_BPF | 1<<unix.CAP_NET_ADMIN | 1<<unix.CAP_PERFMON | 1<<unix.CAP_DAC_READ_SEARCH | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_NET_RAW | 1<<unix.CAP_SYS_ADMIN
	for _, c := range Commands() {
		if err := missing(c.Name, all); err != nil {
			t.Errorf("with all: %v", err)
		}
		for _, n := range c.Needs {
			err := missing(c.Name, all&^(1<<Number(n.Capability)))
			if err == nil || !strings.HasPrefix(err.Error(), n.Capability+" (to ") || !strings.Contains(err.Error(), "AmbientCapabilities") {
				t.Errorf("%s without %s: %v", c.Name, n.Capability, err)
			}
		}
	}
	if err := missing(LBRunEBPF, 0); err == nil || strings.Count(err.Error(), "(to ") != 3 {
		t.Errorf("without any: %v", err)
	}
}

func TestKeyFilesOfOthers(t *testing.T) {
	for mode, warned := range map[os.FileMode]bool{0o600: false, 0o400: false, 0o640: true, 0o604: true, 0o644: true} {
		path := filepath.Join(t.TempDir(), "key")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		WarnKeyFile(slog.New(slog.NewTextHandler(&out, nil)), "PSK file", path)
		if got := strings.Contains(out.String(), "chmod"); got != warned {
			t.Errorf("mode %s: %q", mode, out.String())
		}
	}
}
