package node

import (
	"fmt"
	"strings"

	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/keyerror"
	"github.com/weir-lb/weir/internal/readfile"
)

// Bounds of a file of ticket secrets.
const (
	maxTicketFile    = 1 << 16 // bytes
	maxTicketSecrets = 16      // each ticket that comes is compared with the names of all
)

// loadTicketSecrets reads a file of secrets that seal session tickets (RFC 5077), 32 bytes a line in base64 or, behind ":0x", in hexadecimal digits;
// "#" starts a comment line. The first one seals, all of them open. Errors name file, line and remedy, never a secret. path may
// be empty: there are none.
func loadTicketSecrets(path string) ([][]byte, error) {
	if path == "" {
		return nil, nil
	}
	text, err := readfile.Read(path, maxTicketFile)
	if err != nil {
		return nil, fmt.Errorf("ticket secrets: %w", err)
	}
	return parseTicketSecrets(path, string(text))
}

const makeTicketSecret = "head -c 32 /dev/urandom | base64"

func parseTicketSecrets(path, text string) (secrets [][]byte, err error) {
	number := 0
	for line := range strings.Lines(text) {
		number++
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		secret, err := decodeKey(line)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s:%d: no secret in base64; make one with: %s", path, number, makeTicketSecret)
		case len(secret) != handshake.TicketSecretLength:
			return nil, fmt.Errorf("%s:%d: the secret has %d bytes, want %d; make one with: %s", path, number, len(secret), handshake.TicketSecretLength, makeTicketSecret)
		case len(secrets) == maxTicketSecrets:
			return nil, fmt.Errorf("%s:%d: more than %d secrets; remove those whose tickets have expired, after a day", path, number, maxTicketSecrets)
		}
		secrets = append(secrets, secret)
	}
	if len(secrets) == 0 {
		return nil, fmt.Errorf("%s: no secret; make one with: %s", path, makeTicketSecret)
	}
	return secrets, nil
}

// resumption returns what DTLS sessions are resumed with; nil: they are not.
func (n *Node) resumption() (*handshake.Resumption, error) {
	if n.cfg.Resumption != nil || !*n.cfg.Resume {
		return n.cfg.Resumption, nil
	}
	secrets, err := loadTicketSecrets(n.cfg.TicketSecrets)
	if err != nil {
		return nil, err
	}
	r, err := handshake.NewResumption(handshake.ResumptionConfig{})
	if err == nil && secrets != nil {
		err = r.SetSecrets(secrets...)
	}
	if err != nil {
		return nil, fmt.Errorf("resumption: %w", err)
	}
	return r, nil
}

// checkTickets refuses ticket secrets where sessions are not resumed.
func (c *Config) checkTickets() error {
	if c.TicketSecrets != "" && c.Resume != nil && !*c.Resume {
		return keyerror.Errorf("ticket_secrets", "without resumption there are no tickets; remove it, or resumption: false")
	}
	return nil
}
