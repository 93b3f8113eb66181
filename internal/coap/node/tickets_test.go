package node

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/dtls/handshake"
)

// ticketSecret is a line with a secret of 32 equal bytes.
func ticketSecret(b byte) string {
	return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, handshake.TicketSecretLength)) + "\n"
}

// Errors of a file of ticket secrets name the line and the remedy, and no secret.
func TestTicketSecretsFile(t *testing.T) {
	for text, want := range map[string]string{
		"":                                      "no secret; make one with: head",
		"# none\n":                              "no secret; make one with: head",
		ticketSecret(1) + "\nc2VzYW1l\n":        ":3: the secret has 6 bytes, want 32",
		"not base64!\n":                         ":1: no secret in base64",
		strings.Repeat(ticketSecret(1), 17):     ":17: more than 16 secrets",
		":0x" + strings.Repeat("ab", 31) + "\n": ":1: the secret has 31 bytes",
	} {
		secrets, err := parseTicketSecrets("tickets", text)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "tickets:") || strings.Contains(err.Error(), "c2Vz") || secrets != nil {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	secrets, err := parseTicketSecrets("tickets", "# newest first\n"+ticketSecret(2)+":0x"+strings.Repeat("01", 32)+"\n")
	if err != nil || len(secrets) != 2 || secrets[0][0] != 2 || secrets[1][31] != 1 {
		t.Errorf("%x, %v", secrets, err)
	}
	cfg := Config{DTLS: []string{"127.0.0.1:0"}, TicketSecrets: filepath.Join(t.TempDir(), "none"), Resume: new(bool)}
	if err := cfg.Validate(); err == nil || !strings.HasPrefix(err.Error(), "ticket_secrets: without resumption") {
		t.Error(err)
	}
	cfg.Resume = nil
	if err := cfg.CheckCredentials(); err == nil || !strings.Contains(err.Error(), "ticket secrets") {
		t.Error(err)
	}
	if _, err := Open(cfg); err == nil || !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// Whatever a file of ticket secrets holds: secrets of the right length, or an error with the file.
func FuzzTicketSecrets(f *testing.F) {
	f.Add("# newest first\n" + ticketSecret(2) + ticketSecret(1))
	f.Add(":0x" + strings.Repeat("01", 32))
	f.Add("c2VzYW1l")
	f.Fuzz(func(t *testing.T, text string) {
		secrets, err := parseTicketSecrets("file", text)
		if (err == nil) == (len(secrets) == 0) || len(secrets) > maxTicketSecrets || err != nil && !strings.HasPrefix(err.Error(), "file:") {
			t.Fatalf("%d secrets, %v", len(secrets), err)
		}
		for _, s := range secrets {
			if len(s) != handshake.TicketSecretLength {
				t.Errorf("a secret of %d bytes", len(s))
			}
		}
	})
}
