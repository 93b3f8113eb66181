package initialize

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/cli/clitest"
)

func TestInitWritesAFileThatIsGood(t *testing.T) {
	key := regexp.MustCompile(`(?m)^hash_key: ([0-9a-f]{32})$`)
	seen := map[string]bool{}
	for _, args := range [][]string{
		{},
		{"--vip", "10.0.0.1:80", "--backend", "10.2.0.2:80", "--backend", "10.3.0.2:80"},
		{"--vip", "[2001:db8::1]:80", "--backend", "[fd00::2]:80"},
		{"--protocol", "udp", "--vip", "192.0.2.1:5684", "--backend", "10.0.0.11:5684,10.0.0.12:5684"},
		{"--mode", "l2dsr"},
		{"--mode", "l3dsr", "--backend", "198.51.100.1"},
		{"--mode", "l2dsr", "--protocol", "udp"},
	} {
		name := strings.Join(args, " ")
		file := filepath.Join(t.TempDir(), "weir.yaml")
		if _, err := clitest.Execute(t, append([]string{"init", file}, args...)...); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := key.FindSubmatch(text)
		if found == nil || seen[string(found[1])] {
			t.Fatalf("%s: want a new hash key:\n%s", name, text)
		}
		seen[string(found[1])] = true
		root, warnings := clitest.Root(), new(bytes.Buffer)
		root.SetOut(new(bytes.Buffer))
		root.SetErr(warnings)
		root.SetArgs([]string{"check", file, "--datapath", "ebpf"})
		if err := root.ExecuteContext(t.Context()); err != nil || warnings.Len() > 0 {
			t.Errorf("%s: weir check: %v, %s\n%s", name, err, warnings, text)
		}
	}
}

func TestInitOverwritesNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := clitest.Execute(t, "init", file)
	text, readErr := os.ReadFile(file)
	if err == nil || !strings.Contains(err.Error(), "not overwritten") || readErr != nil || string(text) != "mine" {
		t.Errorf("%v, %q, %v", err, text, readErr)
	}
}

func TestInitRefusesWhatItCannotWrite(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--mode mark", "nat, l2dsr or l3dsr"},
		{"--protocol sctp", "tcp or udp"},
		{"--vip 192.0.2.1", "ADDRESS:PORT"},
		{"--backend 10.0.0.11", "ADDRESS:PORT"},
		{"--mode l2dsr --backend 10.0.0.11:80", "does not change ports"},
		{"other.yaml", "at most one"},
	} {
		file := filepath.Join(t.TempDir(), "weir.yaml")
		_, err := clitest.Execute(t, append([]string{"init", file}, strings.Fields(c.args)...)...)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.args, err, c.want)
		}
		if _, err := os.Stat(file); err == nil {
			t.Errorf("%s: it wrote a file", c.args)
		}
	}
}

func TestInitWritesToStandardOutput(t *testing.T) {
	t.Chdir(t.TempDir())
	out, code := clitest.Weir(t, "init", "-")
	if _, err := os.Stat("-"); code != 0 || err == nil || !strings.HasPrefix(out, "# Weir load balancer.") || strings.Contains(out, "wrote") {
		t.Errorf("exit code %d, a file named -: %v\n%s", code, err == nil, out)
	}
}
