package node

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/weir-lb/weir/internal/coap/oscore"
	"github.com/weir-lb/weir/internal/dtls/credentials"
	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/keyerror"
)

// keys are the credentials of a node, as its listeners use them. A reload replaces what the pointers hold; sessions go on.
type keys struct {
	psk  atomic.Pointer[Credentials]
	dtls *atomic.Pointer[handshake.Credentials] // nil: none
}

// certificates are those of now, which may be none.
func (k *keys) certificates() *handshake.Credentials {
	if k.dtls == nil {
		return new(handshake.Credentials)
	}
	return k.dtls.Load()
}

// CheckCredentials reads the files of keys and certificates without using them. It returns all errors, as [keyerror.Errors].
func (c *Config) CheckCredentials() error {
	var wrong keyerror.List
	psk, err := LoadCredentials(c.PSKFile, c.demo())
	wrong.Add(keyerror.At("psk_file", err))
	if c.OSCOREFile != "" {
		wrong.Add(keyerror.At("oscore", oscore.Check(c.OSCOREFile)))
	}
	_, err = c.clusterWithSecret()
	wrong.Add(err)
	_, err = loadTicketSecrets(c.TicketSecrets)
	wrong.Add(keyerror.At("ticket_secrets", err))
	files := c.files()
	_, err = files.Load(time.Now())
	wrong.Add(err) // it names its key
	if wrong.Err() == nil {
		wrong.Add(c.checkTrust(psk))
	}
	return wrong.Err()
}

// checkTrust refuses what cannot work together: of the PSK file and of the other credentials.
func (c *Config) checkTrust(psk *Credentials) error {
	own := c.Credentials != nil || c.PrivateKey != "" || c.demo()
	switch {
	case len(psk.rawKeys) > 0 && (!own || c.clientAuth() == handshake.ClientAuthNone):
		return keyerror.Errorf("psk_file", "%s: its .rpk lines need private_key, and client_auth wanted or needed", c.PSKFile)
	case c.clientAuth() != handshake.ClientAuthNone && c.Credentials == nil && !c.TrustAll && len(c.Trust) == 0 && !c.demo() && len(psk.rawKeys) == 0:
		return keyerror.Errorf("client_auth", "no client can be trusted; set trust, or trust_all, or write .rpk lines into psk_file")
	}
	return nil
}

// ShortKeys returns how many keys of the PSK file have fewer than 16 bytes, which RFC 9257 section 6 wants at least, and the line of the
// first one.
func (n *Node) ShortKeys() (count, line int) {
	psk := n.keys.psk.Load()
	return psk.short, psk.firstShort
}

// loadPSK reads the PSK file, with which it must be clear which clients are trusted.
func (n *Node) loadPSK() (*Credentials, error) {
	psk, err := LoadCredentials(n.cfg.PSKFile, n.cfg.demo())
	if err != nil {
		return nil, fmt.Errorf("PSK file: %w", err)
	}
	return psk, n.cfg.checkTrust(psk)
}

// loadKeys reads the files for the first time.
func (n *Node) loadKeys() error {
	psk, err := n.loadPSK()
	if err != nil {
		return err
	}
	n.keys.psk.Store(psk)
	if n.keys.dtls = n.cfg.Credentials; n.keys.dtls != nil {
		return nil
	}
	loaded, err := n.loadFiles(psk)
	if err != nil || loaded == nil {
		return err
	}
	n.keys.dtls = new(atomic.Pointer[handshake.Credentials])
	n.keys.dtls.Store(loaded)
	return nil
}

// loadFiles reads the certificate files; without any, and with the demo credentials, it makes a certificate. nil: there are none.
func (n *Node) loadFiles(psk *Credentials) (loaded *handshake.Credentials, err error) {
	defer func() {
		if loaded != nil && len(psk.rawKeys) > 0 {
			others := loaded.RawKey
			loaded.RawKey = func(spki []byte) bool { return psk.trustsRawKey(spki) || others != nil && others(spki) }
		}
	}()
	files := n.cfg.files()
	if !n.cfg.demo() || n.cfg.PrivateKey != "" {
		if !files.Given() {
			return nil, nil
		}
		return files.Load(time.Now())
	}
	made, err := credentials.Ephemeral(demoHosts())
	if err != nil || !files.Given() {
		return made, err
	}
	trusted, err := files.Load(time.Now())
	if err != nil {
		return nil, err
	}
	made.Roots, made.TrustAll = trusted.Roots, trusted.TrustAll
	return made, nil
}

// demoHosts are the names of the demo certificate.
func demoHosts() []string {
	hosts := []string{"localhost", "127.0.0.1", "::1"}
	if name, err := os.Hostname(); err == nil && name != "" && name != "localhost" {
		hosts = append(hosts, name)
	}
	return hosts
}

// ReloadCredentials reads the files of keys and certificates again. New handshakes use their content; sessions stay. On error the last
// good credentials stay, all of them, and Status shows the error. Safe from any goroutine.
func (n *Node) ReloadCredentials() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reloadErr = n.reload()
	if n.reloadErr == nil {
		n.generation++
	}
	return n.reloadErr
}

func (n *Node) reload() error {
	psk, err := n.loadPSK()
	if err != nil {
		return err
	}
	secrets, err := loadTicketSecrets(n.cfg.TicketSecrets)
	if err != nil {
		return err
	}
	if files := n.cfg.files(); n.cfg.Credentials == nil && files.Given() {
		loaded, err := n.loadFiles(psk)
		if err != nil {
			return err
		}
		n.keys.dtls.Store(loaded)
	}
	if secrets != nil && n.cfg.Resumption == nil {
		if err := n.resume.SetSecrets(secrets...); err != nil {
			return err
		}
	}
	n.keys.psk.Store(psk)
	return nil
}
