package credentials

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/dtls/handshake/handshaketest"
)

func file(t *testing.T, typ string, der []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.pem")
	text := []byte("nothing in PEM")
	if typ != "" {
		text = pem.EncodeToMemory(&pem.Block{Type: typ, Bytes: der})
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoad(t *testing.T) {
	authority := handshaketest.NewAuthority(t, "test")
	for _, kind := range []string{"P-256", "P-384", "Ed25519", "RSA"} {
		issued := authority.Issue(t, kind, "device", nil)
		chain, key := issued.Files(t)
		c, err := (&Files{Chain: chain, Key: key, Trust: []string{authority.File(t)}}).Load()
		if err != nil || len(c.Certificates) != 1 || !c.Roots.Equal(authority.Roots) || c.RawKey != nil {
			t.Errorf("%s: %+v, %v", kind, c, err)
		}
		spki, err := x509.MarshalPKIXPublicKey(issued.Key.Public())
		if err != nil {
			t.Fatal(err)
		}
		c, err = (&Files{RawKey: key, Trust: []string{file(t, "PUBLIC KEY", spki)}}).Load()
		if err != nil || len(c.Certificates) != 1 || c.Roots != nil || !c.RawKey(spki) || c.RawKey(spki[1:]) {
			t.Errorf("%s: raw public key: %+v, %v", kind, c, err)
		}
	}
	if (&Files{}).Given() || !(&Files{TrustAll: true}).Given() {
		t.Error("what is given")
	}
}

func TestLoadNamesFileAndRemedy(t *testing.T) {
	authority := handshaketest.NewAuthority(t, "test")
	one, other := authority.Issue(t, "P-256", "one", nil), authority.Issue(t, "P-256", "other", nil)
	chain, key := one.Files(t)
	_, wrong := other.Files(t)
	for want, files := range map[string]Files{
		"no PEM block; convert it":            {Chain: file(t, "", nil)},
		"no CERTIFICATE block":                {Chain: key},
		"no PRIVATE KEY block":                {Chain: chain},
		"is not that of the first":            {Chain: chain, Key: wrong},
		"is encrypted; decrypt it with":       {Chain: chain, Key: file(t, "ENCRYPTED PRIVATE KEY", nil)},
		"the private key: ":                   {RawKey: file(t, "EC PRIVATE KEY", []byte{1})},
		"a key without its certificates":      {Key: key},
		"leave one of them out":               {Chain: chain, RawKey: key},
		"neither a CERTIFICATE nor a PUBLIC":  {Trust: []string{key}},
		"no such file":                        {Trust: []string{"/nowhere/root.pem"}},
		"file.pem: x509: malformed certifica": {Trust: []string{file(t, "CERTIFICATE", []byte{1})}},
	} {
		if _, err := files.Load(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", files, err, want)
		}
	}
}

func FuzzParseKey(f *testing.F) {
	f.Add("PRIVATE KEY", []byte{0x30, 0})
	f.Add("EC PRIVATE KEY", []byte{0x30, 0})
	f.Fuzz(func(t *testing.T, typ string, der []byte) {
		key, known, err := parseKey(&pem.Block{Type: typ, Bytes: der})
		if known && err == nil && key == nil {
			t.Error("no key and no error")
		}
	})
}
