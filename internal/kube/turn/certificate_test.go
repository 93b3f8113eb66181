package turn_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/weir-lb/weir/internal/kube/turn"
	"github.com/weir-lb/weir/internal/kube/turn/turntest"
)

const tlsWorld = `
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: c}
spec: {controllerName: stunner.l7mp.io/gateway-operator, parametersRef: {group: stunner.l7mp.io, kind: GatewayConfig, name: g, namespace: media}}
---
apiVersion: stunner.l7mp.io/v1
kind: GatewayConfig
metadata: {name: g, namespace: media}
spec: {userName: user, password: secret of the user}
---
apiVersion: stunner.l7mp.io/v1
kind: Dataplane
metadata: {name: default}
---
apiVersion: v1
kind: Secret
metadata: {name: cert, namespace: NAMESPACE}
data: {tls.crt: "CERT", tls.key: "$KEY"}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: turn, namespace: media}
spec:
  gatewayClassName: c
  listeners: [{name: tls, port: 5349, protocol: TURN-TLS, tls: {certificateRefs: [{name: cert, namespace: NAMESPACE}]}}]
`

// A certificate that is wrong changes nothing: the one before stays in force, and the condition says so. One that is no longer permitted does not.
func TestCertificatesStayWhileTheNewOneIsWrong(t *testing.T) {
	name := types.NamespacedName{Namespace: "media", Name: "turn"}
	world := func(namespace, cert string) *turn.World {
		return worldOf(t, strings.NewReplacer("NAMESPACE", namespace, "CERT", cert).Replace(tlsWorld))
	}
	good := turn.Translate(world("media", "$CERTIFICATE"), options(), now)
	listeners := good.Configurations[name].Listeners
	if len(listeners) != 1 || listeners[0].Cert == "" || listeners[0].Key == "" {
		t.Fatalf("%+v", good.Configurations[name].Redacted())
	}
	w := world("media", "bm9uc2Vuc2U=")
	if r := turn.Translate(w, options(), now); len(r.Configurations[name].Listeners) != 0 {
		t.Error("a wrong certificate is served")
	}
	w.Previous = good.Configurations
	r := turn.Translate(w, options(), now)
	if l := r.Configurations[name].Listeners; len(l) != 1 || l[0].Cert != listeners[0].Cert || l[0].Key != listeners[0].Key {
		t.Error("the certificate before does not stay")
	}
	if text := status(r); !strings.Contains(text, "ResolvedRefs=False InvalidCertificateRef: ") || !strings.Contains(text, "; the certificate before stays in force") {
		t.Error(text)
	}
	w = world("other", "$CERTIFICATE")
	w.Previous = good.Configurations
	r = turn.Translate(w, options(), now)
	if l := r.Configurations[name].Listeners; len(l) != 0 {
		t.Error("a certificate of another namespace is served")
	}
	if text := status(r); !strings.Contains(text, "ResolvedRefs=False RefNotPermitted: ") {
		t.Error(text)
	}
}

// A configuration with faults elsewhere keeps what is in force, which the condition says.
func TestTheConfigurationBeforeStays(t *testing.T) {
	w := worldOf(t, strings.NewReplacer("NAMESPACE", "media", "CERT", "$CERTIFICATE").Replace(tlsWorld))
	good := turn.Translate(w, options(), now)
	turntest.Apply(w, good)
	w.Configs[0].Spec.Password = nil
	r := turn.Translate(w, options(), now)
	if len(r.Configurations) != 0 || len(r.Kept) != 1 || len(r.Stay) != 2 || len(r.Deployments)+len(r.Services) != 0 {
		t.Errorf("%+v", r)
	}
	if text := status(r); !strings.Contains(text, "; the configuration before stays in force") {
		t.Error(text)
	}
}

// No message contains a secret.
func TestMessagesContainNoSecret(t *testing.T) {
	w := worldOf(t, strings.NewReplacer("NAMESPACE", "media", "CERT", "$CERTIFICATE").Replace(tlsWorld))
	w.Configs[0].Spec.AuthType = new("oauth")
	w.Secrets[0].Data["tls.crt"] = []byte("-----BEGIN secret")
	if text := text(t, turn.Translate(w, options(), now)); strings.Contains(text, "secret of the user") || strings.Contains(text, "BEGIN") {
		t.Error(text)
	}
}

// Whatever an annotation says, what is translated is a Service that the API server could take.
func FuzzAnnotations(f *testing.F) {
	f.Add(`{"tls": 30000}`, `"tls": 8443`, "NodePort")
	f.Add(`{"tls": -1}`, `{"tls": 1e99}`, "ExternalName")
	f.Fuzz(func(t *testing.T, nodes, targets, kind string) {
		w := worldOf(t, strings.NewReplacer("NAMESPACE", "media", "CERT", "$CERTIFICATE").Replace(tlsWorld))
		w.Gateways[0].Annotations = map[string]string{"stunner.l7mp.io/nodeport": nodes, "stunner.l7mp.io/targetport": targets, "stunner.l7mp.io/service-type": kind}
		r := turn.Translate(w, options(), now)
		if len(r.Services) != 1 || len(r.Services[0].Spec.Ports) != 1 {
			t.Fatalf("%+v", r.Services)
		}
		p := r.Services[0].Spec.Ports[0]
		if p.NodePort < 0 || p.NodePort > 65535 || p.TargetPort.IntVal < 1 || p.TargetPort.IntVal > 65535 || r.Services[0].Spec.Type == "ExternalName" {
			t.Errorf("%+v", p)
		}
	})
}
