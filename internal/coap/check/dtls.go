package check

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/weir-lb/weir/internal/coap/client"
	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/record"
)

// The pre-shared key of the list, for a user who names none.
const (
	listIdentity = "password"
	listSecret   = "sesame"
)

// maxLost bounds the datagrams of a handshake that are lost one after the other.
const maxLost = 24

// psk is the security of TD_COAP_DTLS_01 to 03.
func (c *conversation) psk() client.Security {
	s := client.Security{Identity: c.cfg.Security.Identity, Secret: c.cfg.Security.Secret, NoCID: c.cfg.Security.NoCID, CIDLength: c.cfg.Security.CIDLength}
	if s.Identity == "" {
		s.Identity, s.Secret = listIdentity, []byte(listSecret)
	}
	s.Suites = []record.Suite{record.PSKWithAES128CCM8}
	return s
}

// rawKey is the security of TD_COAP_DTLS_04 to 07: the user's key, or a new one, and the servers' keys that the user trusts, or all.
func (c *conversation) rawKey(unknown bool) (client.Security, error) {
	var own handshake.Credentials
	if given := c.cfg.Security.Credentials; given != nil {
		own = *given
	}
	if !c.cfg.Known || unknown {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return client.Security{}, err
		}
		certificate, err := handshake.NewCertificate(nil, key)
		if err != nil {
			return client.Security{}, err
		}
		own.Certificates = []*handshake.Certificate{certificate}
	}
	own.Roots = nil
	if own.RawKey == nil {
		own.RawKey = func([]byte) bool { return true }
	}
	return client.Security{Credentials: &own, NoCID: c.cfg.Security.NoCID, CIDLength: c.cfg.Security.CIDLength, Suites: []record.Suite{record.ECDHEECDSAWithAES128CCM8}}, nil
}

// shake makes a session, and notes how it ended.
func (c *conversation) shake(own client.Security, under func(client.RawLink) client.RawLink) error {
	c.close()
	c.buffer, c.observed = make([]byte, maxDatagram), nil
	err := c.connect(client.DialConfig{Security: own, Timeout: c.cfg.Timeout, Under: under})
	if err != nil {
		c.note("handshake: %v", err)
		return err
	}
	c.note("handshake: a session")
	return nil
}

// handshakeFailed is the failure of a handshake that should succeed. Where the server knows no such suite or identity, it lacks something.
func handshakeFailed(what string, err error) error {
	var alert handshake.AlertError
	if errors.As(err, &alert) {
		switch alert {
		case 40, 71:
			return lackf("the server has no cipher suite, or no key, for a handshake with %s: alert %d", what, alert)
		case 20, 51, 115:
			return lackf("the server does not know the identity, or has another key for it; give --identity and --secret: alert %d", alert)
		case 42, 43, 44, 45, 46, 48, 49:
			return lackf("the server does not accept the raw public key of this client; give --rpk with one that it accepts: alert %d", alert)
		}
	}
	return &failure{"a handshake with " + what, "a DTLS session", err.Error(), "RFC 7252 section 9.1; RFC 6347 section 4.2"}
}

// secured gets /test over the new session.
func (c *conversation) secured() error {
	if err := c.provide("/test", []byte(sample)); err != nil {
		return err
	}
	_, err := c.ask(request{code: message.GET, path: "/test", needed: true}, code(message.Content), hasPayload)
	return err
}

// pskSession is TD_COAP_DTLS_01.
func pskSession(c *conversation) error {
	defer c.close()
	if err := c.shake(c.psk(), nil); err != nil {
		return handshakeFailed(record.PSKWithAES128CCM8.String(), err)
	}
	return c.secured()
}

// pskWrong is TD_COAP_DTLS_02: no session; an alert, or silence, which RFC 6347 section 4.1.2.7 allows for records that do not open.
func pskWrong(c *conversation) error {
	defer c.close()
	own := c.psk()
	if own.Secret = []byte("wrong"); string(c.cfg.Security.Secret) == "wrong" {
		own.Secret = []byte("not right")
	}
	err := c.shake(own, nil)
	return refused(fmt.Sprintf("a handshake with the identity %q and the key %q", own.Identity, own.Secret), err, func(alert handshake.AlertError) bool {
		return alert == 51 || alert == 20 || alert == 115
	}, "decrypt_error (51)")
}

// refused judges a handshake that must fail with one of some alerts.
func refused(what string, err error, expected func(handshake.AlertError) bool, name string) error {
	var alert handshake.AlertError
	switch {
	case err == nil:
		return &failure{what, "no session, and the alert " + name, "a session", "RFC 4279 section 2; RFC 7250 section 4; RFC 5246 section 7.2.2"}
	case errors.As(err, &alert) && expected(alert):
		return nil
	case errors.As(err, &alert) && (alert == 40 || alert == 71):
		return lackf("the server has no such cipher suite: alert %d", alert)
	case errors.As(err, &alert):
		return &failure{what, "the alert " + name, fmt.Sprintf("alert %d", alert), "ETSI list; RFC 5246 section 7.2.2"}
	case errors.Is(err, handshake.ErrNoFinished):
		return lackf("the server refused %s in silence, as RFC 6347 section 4.1.2.7 allows; the list expects the alert %s", what, name)
	}
	return &failure{what, "the alert " + name, err.Error(), "ETSI list; RFC 5246 section 7.2.2"}
}

// losing drops one datagram of those that go through it, counted in both directions.
type losing struct {
	client.RawLink
	drop, count int
	dropped     bool
}

func (l *losing) lost() bool {
	l.count++
	if l.count-1 == l.drop {
		l.dropped = true
	}
	return l.count-1 == l.drop
}

func (l *losing) Write(b []byte) (int, error) {
	if l.lost() {
		return len(b), nil
	}
	return l.RawLink.Write(b)
}

func (l *losing) Read(b []byte) (int, error) {
	for {
		n, err := l.RawLink.Read(b)
		if err != nil || !l.lost() {
			return n, err
		}
	}
}

// lossyHandshake makes sessions with each datagram of the handshake lost once.
func (c *conversation) lossyHandshake(own client.Security, what string) error {
	defer c.close()
	if err := c.shake(own, nil); err != nil {
		return handshakeFailed(what, err)
	}
	for drop := range maxLost {
		var l *losing
		err := c.shake(own, func(under client.RawLink) client.RawLink {
			l = &losing{RawLink: under, drop: drop}
			return l
		})
		if err != nil {
			return &failure{fmt.Sprintf("a handshake with %s, datagram %d of which was lost", what, drop+1), "a DTLS session after a retransmission", err.Error(), "RFC 6347 section 4.2.4"}
		}
		if !l.dropped {
			return nil // the handshake has no more datagrams
		}
		if err := c.secured(); err != nil {
			return err
		}
	}
	return nil
}

// pskLossy is TD_COAP_DTLS_03.
func pskLossy(c *conversation) error {
	return c.lossyHandshake(c.psk(), record.PSKWithAES128CCM8.String())
}

const rawKeys = "raw public keys"

// shakeRawKey makes a session with the raw public key of the configuration.
func (c *conversation) shakeRawKey() error {
	own, err := c.rawKey(false)
	if err != nil {
		return err
	}
	if err := c.shake(own, nil); err != nil {
		return handshakeFailed(rawKeys, err)
	}
	return nil
}

// rawKeySession is TD_COAP_DTLS_04.
func rawKeySession(c *conversation) error {
	defer c.close()
	if err := c.shakeRawKey(); err != nil {
		return err
	}
	return c.secured()
}

// rawKeyUntrusted is TD_COAP_DTLS_05: this client does not trust the server's key, and the server lives on after its alert.
func rawKeyUntrusted(c *conversation) error {
	defer c.close()
	own, err := c.rawKey(false)
	if err != nil {
		return err
	}
	trusting := own
	refusing := *own.Credentials
	shown := false
	refusing.RawKey = func([]byte) bool { shown = true; return false }
	own.Credentials = &refusing
	switch err = c.shake(own, nil); {
	case err == nil:
		return &failure{"a handshake that trusts no raw public key", "no session", "a session", "RFC 7250 section 4"}
	case !shown: // it is not this client that has ended it
		return handshakeFailed(rawKeys, err)
	}
	if err := c.shake(trusting, nil); err != nil {
		if failed := handshakeFailed(rawKeys, err); errors.As(failed, new(lack)) { // the server does not trust this client either
			return failed
		}
		return &failure{"the alert certificate_unknown (46), and then a new handshake", "a DTLS session", err.Error(), "RFC 6347 section 4.2.8"}
	}
	return c.secured()
}

// rawKeyUnknown is TD_COAP_DTLS_06: the server does not know this client's key. That it may be refused is known only where the user
// has named one that is accepted.
func rawKeyUnknown(c *conversation) error {
	defer c.close()
	if !c.cfg.Known {
		return lack("give --rpk with a raw public key that the server accepts, so that another one is known to be a stranger's")
	}
	if err := c.shakeRawKey(); err != nil {
		return err
	}
	own, err := c.rawKey(true)
	if err != nil {
		return err
	}
	return refused("a handshake with a raw public key that the server does not know", c.shake(own, nil), func(alert handshake.AlertError) bool {
		return alert >= 42 && alert <= 49
	}, "certificate_unknown (46)")
}

// rawKeyLossy is TD_COAP_DTLS_07.
func rawKeyLossy(c *conversation) error {
	own, err := c.rawKey(false)
	if err != nil {
		return err
	}
	return c.lossyHandshake(own, rawKeys)
}
