package bench

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A peer is found by the variable that names it, and else in the PATH; what is missing is named, with the remedy.
func TestPeersAreFound(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	program, plain := filepath.Join(dir, "stunnerd"), filepath.Join(dir, "plain")
	for _, p := range peerPrograms() {
		t.Setenv(p.env, "")
		err := checkPeers([]string{p.name}, p.name)
		if err == nil || !strings.Contains(err.Error(), p.from) || !strings.Contains(err.Error(), "$"+p.env) {
			t.Errorf("%s is not there: %v", p.name, err)
		}
		t.Setenv(p.env, filepath.Join(dir, "missing"))
		if err := checkPeers([]string{p.name}, p.name); err == nil || !strings.Contains(err.Error(), "$"+p.env) || !strings.Contains(err.Error(), "missing") {
			t.Errorf("$%s names nothing: %v", p.env, err)
		}
		t.Setenv(p.env, "")
	}
	for file, mode := range map[string]os.FileMode{program: 0o700, plain: 0o600} {
		if err := os.WriteFile(file, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	if path, err := findPeer(peerStunner); err != nil || path != program {
		t.Errorf("in the PATH: %q, %v", path, err)
	}
	t.Setenv("WEIR_NFQLB", program)
	if path, err := findPeer(peerNfqlb); err != nil || path != program {
		t.Errorf("named: %q, %v", path, err)
	}
	t.Setenv("WEIR_NFQLB", plain)
	if _, err := findPeer(peerNfqlb); err == nil {
		t.Error("a file that cannot be executed was taken")
	}
	t.Setenv("WEIR_CF_NAT", plain)
	if _, err := findPeer(peerCfNAT); err == nil || !strings.Contains(err.Error(), "java is not in the PATH") {
		t.Errorf("no java: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "java"), nil, 0o700); err != nil {
		t.Fatal(err)
	}
	if path, err := findPeer(peerCfNAT); err != nil || path != plain {
		t.Errorf("a jar: %q, %v", path, err)
	}
}

// A class path is taken as it is named; without java no peer of that kind is there.
func TestTheClassPathOfAPeer(t *testing.T) {
	bin := t.TempDir()
	t.Setenv("PATH", bin)
	t.Setenv("WEIR_SCANDIUM", "/somewhere/classes")
	if _, err := findPeer(peerScandium); err == nil || !strings.Contains(err.Error(), "--with scandium: java is not in the PATH") {
		t.Errorf("without java: %v", err)
	}
	if err := os.WriteFile(filepath.Join(bin, "java"), nil, 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	if path, err := findPeer(peerScandium); err != nil || path != "/somewhere/classes" {
		t.Errorf("%q, %v", path, err)
	}
}

func TestPeersOfARunAreChecked(t *testing.T) {
	for want, with := range map[string][]string{
		`--with "katran": write coturn, stunnerd`: {"katran"},
		"coturn is named twice":                   {peerCoturn, peerCoturn},
	} {
		t.Setenv("WEIR_TURNSERVER", "/bin/sh")
		if err := checkPeers(with, TurnPeers()...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", with, err)
		}
	}
}
