package turn

import (
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// certificate finds the certificate of a listener over TLS or DTLS: the first usable one of its references. If there is none, a certificate of
// the configuration before stays in force, unless the reference is not permitted.
func (t *translation) certificate(g *gate, l *listener) {
	cert, key, err := t.certificateOf(g, l)
	if l.tls = err; err == nil {
		l.cert, l.key = base64.StdEncoding.EncodeToString(cert), base64.StdEncoding.EncodeToString(key)
		return
	}
	var refused *notPermitted
	previous := t.world.Previous[nameOf(g)]
	if errors.As(err, &refused) || previous == nil {
		return
	}
	name := g.Namespace + "/" + g.Name + "/" + string(l.Name)
	for i := range previous.Listeners {
		if p := &previous.Listeners[i]; p.Name == name && p.Protocol == l.protocol.stunner {
			l.cert, l.key, l.kept = p.Cert, p.Key, p.Cert != ""
		}
	}
}

func (t *translation) certificateOf(g *gate, l *listener) (cert, key []byte, err error) {
	if l.TLS == nil || len(l.TLS.CertificateRefs) == 0 {
		return nil, nil, errors.New("tls.certificateRefs: missing; name a Secret of type kubernetes.io/tls")
	}
	if mode := deref(l.TLS.Mode, gatewayv1.TLSModeTerminate); mode != gatewayv1.TLSModeTerminate {
		return nil, nil, fmt.Errorf("tls.mode: %s is not possible with TURN; write Terminate", mode)
	}
	for i, ref := range l.TLS.CertificateRefs {
		name, wrong := t.secretName(ref, from{gatewayv1.GroupName, "Gateway", g.Namespace})
		if wrong == nil {
			if cert, key, wrong = pair(t.secrets[name]); wrong == nil {
				return cert, key, nil
			}
			wrong = fmt.Errorf("tls.certificateRefs[%d]: Secret %s: %w", i, name, wrong)
		}
		if err == nil {
			err = wrong
		}
	}
	return nil, nil, err
}

// pair is the certificate and key of a Secret. Besides the keys of type kubernetes.io/tls those are read that STUNner reads.
func pair(secret *corev1.Secret) (cert, key []byte, err error) {
	if secret == nil {
		return nil, nil, errors.New("it does not exist, or the operator may not read it; create it, or check the operator's role")
	}
	for _, name := range []string{"tls.crt", "crt", "cert"} {
		if cert == nil {
			cert = secret.Data[name]
		}
	}
	for _, name := range []string{"tls.key", "key"} {
		if key == nil {
			key = secret.Data[name]
		}
	}
	if len(cert) == 0 || len(key) == 0 {
		return nil, nil, errors.New("it has no tls.crt or no tls.key; write both as PEM")
	}
	if _, err := tls.X509KeyPair(cert, key); err != nil {
		return nil, nil, fmt.Errorf("certificate and key cannot be used: %w", err)
	}
	return cert, key, nil
}
