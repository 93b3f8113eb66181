package turntest

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"reflect"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/weir-lb/weir/internal/kube/turn"
)

// World reads objects from YAML; an unknown field or kind is an error. $CERTIFICATE and $KEY are the base64 of a pair that fits.
func World(text []byte) (*turn.World, error) {
	certificate, key := pair()
	text = []byte(strings.NewReplacer("$CERTIFICATE", certificate, "$KEY", key).Replace(string(text)))
	w := &turn.World{}
	for document := range bytes.SplitSeq(append([]byte("\n"), text...), []byte("\n---")) {
		if len(bytes.TrimSpace(document)) == 0 {
			continue
		}
		var head metav1.TypeMeta
		if err := yaml.Unmarshal(document, &head); err != nil {
			return nil, fmt.Errorf("%w in\n%s", err, document)
		}
		into := list(w, head)
		if into == nil {
			return nil, fmt.Errorf("kind %s of %s is not in a World", head.Kind, head.APIVersion)
		}
		of := reflect.ValueOf(into).Elem()
		one := reflect.New(of.Type().Elem().Elem())
		if err := yaml.UnmarshalStrict(document, one.Interface()); err != nil {
			return nil, fmt.Errorf("%s: %w in\n%s", head.Kind, err, document)
		}
		object := one.Interface().(metav1.Object)
		if object.GetUID() == "" {
			object.SetUID(types.UID(strings.ToLower(head.Kind) + "-" + object.GetNamespace() + "-" + object.GetName()))
		}
		of.Set(reflect.Append(of, one))
	}
	return w, nil
}

// list is a pointer to the list of a World that a kind belongs to.
func list(w *turn.World, head metav1.TypeMeta) any {
	switch head.APIVersion + " " + head.Kind {
	case "gateway.networking.k8s.io/v1 GatewayClass":
		return &w.Classes
	case "gateway.networking.k8s.io/v1 Gateway":
		return &w.Gateways
	case "gateway.networking.k8s.io/v1 UDPRoute":
		return &w.StandardRoutes
	case "gateway.networking.k8s.io/v1 ReferenceGrant":
		return &w.Grants
	case "stunner.l7mp.io/v1 GatewayConfig":
		return &w.Configs
	case "stunner.l7mp.io/v1 Dataplane":
		return &w.Dataplanes
	case "stunner.l7mp.io/v1 UDPRoute":
		return &w.Routes
	case "stunner.l7mp.io/v1 StaticService":
		return &w.StaticServices
	case "v1 Service":
		return &w.Services
	case "v1 Secret":
		return &w.Secrets
	case "v1 Namespace":
		return &w.Namespaces
	case "v1 Node":
		return &w.Nodes
	case "discovery.k8s.io/v1 EndpointSlice":
		return &w.Slices
	case "apps/v1 Deployment":
		return &w.Deployments
	case "v1 ConfigMap":
		return &w.ConfigMaps
	case "apps/v1 DaemonSet":
		return &w.DaemonSets
	}
	return nil
}

// pair is a certificate with its key, each as base64 of PEM, made once.
var pair = sync.OnceValues(func() (certificate, key string) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"turn.example"}, NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<33, 0)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		panic(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		panic(err)
	}
	encode := func(kind string, der []byte) string {
		return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	return encode("CERTIFICATE", der), encode("PRIVATE KEY", secret)
})
