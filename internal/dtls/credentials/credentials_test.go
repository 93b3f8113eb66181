package credentials

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/dtls/handshake/handshaketest"
)

func file(t *testing.T, typ string, der []byte) string {
	t.Helper()
	if typ == "" {
		return written(t, "nothing in PEM")
	}
	return written(t, string(pem.EncodeToMemory(&pem.Block{Type: typ, Bytes: der})))
}

func written(t *testing.T, text ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.pem")
	if err := os.WriteFile(path, []byte(strings.Join(text, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoad(t *testing.T) {
	authority := handshaketest.NewAuthority(t, "test")
	for _, kind := range []string{"P-256", "P-384", "Ed25519", "RSA"} {
		issued := authority.Issue(t, kind, "device", nil)
		chain, key := issued.Files(t)
		c, err := (&Files{Chain: chain, Key: key, Trust: []string{authority.File(t)}}).Load(time.Now())
		if err != nil || len(c.Certificates) != 1 || !c.Roots.Equal(authority.Roots) || c.RawKey != nil {
			t.Errorf("%s: %+v, %v", kind, c, err)
		}
		spki, err := x509.MarshalPKIXPublicKey(issued.Key.Public())
		if err != nil {
			t.Fatal(err)
		}
		c, err = (&Files{RawKey: key, Trust: []string{file(t, "PUBLIC KEY", spki)}}).Load(time.Now())
		if err != nil || len(c.Certificates) != 1 || c.Roots != nil || !c.RawKey(spki) || c.RawKey(spki[1:]) {
			t.Errorf("%s: raw public key: %+v, %v", kind, c, err)
		}
	}
	both := Files{Chain: "a", Key: "b", Trust: []string{"c", "d"}}
	if got := both.Names(); !slices.Equal(got, []string{"a", "b", "c", "d"}) {
		t.Errorf("%q", got)
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
	old := authority.Issue(t, "P-256", "old", func(c *x509.Certificate) { c.NotAfter = time.Date(2001, 2, 3, 0, 0, 0, 0, time.UTC) })
	future := authority.Issue(t, "P-256", "future", func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Date(2101, 2, 3, 0, 0, 0, 0, time.UTC), time.Date(2102, 2, 3, 0, 0, 0, 0, time.UTC)
	})
	text, err := os.ReadFile(authority.File(t))
	if err != nil {
		t.Fatal(err)
	}
	root, keys := string(text), Keys{Chain: "certificate", Key: "private_key", Trust: "trust"}
	for want, files := range map[string]Files{
		"no PEM block; convert it":                               {Chain: file(t, "", nil)},
		"no CERTIFICATE block":                                   {Chain: key},
		"no PRIVATE KEY block":                                   {Chain: chain},
		"does not fit: the private key is not that of the first": {Chain: chain, Key: wrong},
		"is encrypted; decrypt it with":                          {Chain: chain, Key: file(t, "ENCRYPTED PRIVATE KEY", nil)},
		"the private key: ":                                      {RawKey: file(t, "EC PRIVATE KEY", []byte{1})},
		"a key without its certificates":                         {Key: key},
		"leave one of them out":                                  {Chain: chain, RawKey: key},
		"key.pem:1: a private key; a file to trust":              {Trust: []string{key}},
		"neither a CERTIFICATE nor a PUBLIC":                     {Trust: []string{file(t, "EC PARAMETERS", []byte{1})}},
		"file.pem:1: asn1: ":                                     {Trust: []string{file(t, "PUBLIC KEY", []byte{1})}},
		"file.pem:2: the PEM block that begins here is damaged":  {Trust: []string{written(t, "a comment\n-----BEGIN CERTIFICATE-----\n*\n-----END CERTIFICATE-----\n", root)}},
		fmt.Sprintf("file.pem:%d: the PEM block that begins here is damaged", strings.Count(root, "\n")+1): {Trust: []string{written(t, root, "-----BEGIN CERTIFICATE-----\nAAAA\n")}},
		"certificate: stat /nowhere/chain.pem: no such file":                                               {Chain: "/nowhere/chain.pem", Key: key, Keys: keys},
		"private_key: " + wrong + " does not fit":                                                          {Chain: chain, Key: wrong, Keys: keys},
		"private_key: stat /nowhere/key.pem":                                                               {RawKey: "/nowhere/key.pem", Keys: keys},
		"trust[1]: stat /nowhere/root.pem":                                                                 {Trust: []string{authority.File(t), "/nowhere/root.pem"}, Keys: keys},
		"file.pem:1: the certificate ended on 2001-02-03; renew it":                                        {Chain: file(t, "CERTIFICATE", old.Chain[0]), Key: key},
		"file.pem:1: the certificate begins on 2101-02-03 only; look at the clock":                         {Chain: file(t, "CERTIFICATE", future.Chain[0]), Key: key},
		"no such file":                          {Trust: []string{"/nowhere/root.pem"}},
		"file.pem:1: x509: malformed certifica": {Trust: []string{file(t, "CERTIFICATE", []byte{1})}},
	} {
		if _, err := files.Load(time.Now()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", files, err, want)
		}
	}
}

// Each end loads its files and trusts the other; a key may be in the file of its certificates.
func TestDemo(t *testing.T) {
	made, err := Demo([]string{"localhost"})
	if err != nil {
		t.Fatal(err)
	}
	d := t.TempDir()
	for _, f := range made {
		if err := os.WriteFile(filepath.Join(d, f.Name), f.Content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, end := range []string{"server", "client"} {
		own, trust := filepath.Join(d, end), []string{filepath.Join(d, "trust-"+end+".pem")}
		both := filepath.Join(d, end+"-both.pem")
		chain, _ := os.ReadFile(own + ".pem")
		key, _ := os.ReadFile(own + "-key.pem")
		if err := os.WriteFile(both, slices.Concat(key, chain), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, files := range []Files{{Chain: own + ".pem", Key: own + "-key.pem", Trust: trust}, {Chain: both, Trust: trust}} {
			c, err := files.Load(time.Date(2999, 1, 1, 0, 0, 0, 0, time.UTC))
			if err != nil {
				t.Fatal(err)
			}
			certificate, ok := c.Certificates[0].TLS()
			if !ok || len(certificate.Certificate) != 2 || !c.RawKey(certificate.Leaf.RawSubjectPublicKeyInfo) {
				t.Errorf("%s: %+v", end, certificate)
			}
			if _, err := certificate.Leaf.Verify(x509.VerifyOptions{Roots: c.Roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
				t.Errorf("%s: %v", end, err)
			}
		}
	}
}

// Whatever a file holds: blocks, or an error that names it.
func FuzzRead(f *testing.F) {
	f.Add([]byte("-----BEGIN A-----\nAAAA\n-----END A-----\n"))
	f.Add([]byte("x\n-----BEGIN A-----\n-----BEGIN A-----\nAAAA\n-----END A-----"))
	path := filepath.Join(f.TempDir(), "file.pem")
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		blocks, err := read(path)
		if err != nil && !strings.HasPrefix(err.Error(), path) || err == nil && len(blocks) == 0 {
			t.Errorf("%v, %v", blocks, err)
		}
		for _, b := range blocks {
			if !strings.HasPrefix(b.at, path+":") || !bytes.Contains(text, []byte("-----BEGIN "+b.Type)) {
				t.Errorf("%+v", b)
			}
		}
	})
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
