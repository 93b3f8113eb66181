package gateway

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/control/config/configtest"
	"github.com/weir-lb/weir/internal/turn/allocation"
)

// decode reads a file as `weir turn gateway -c` does.
func decode(name string, text []byte) (Config, error) {
	c, document, err := config.Decode[Config](name, text)
	if err != nil {
		return c, err
	}
	if err := c.Validate(); err != nil {
		return c, document.Locate(err)
	}
	return c, nil
}

func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../../../examples/turn/*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		if filepath.Base(file) == "stunnerd.yaml" {
			continue // read in package stunnerd
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		c, err := decode(file, text)
		if err != nil {
			t.Error(err)
			continue
		}
		if filled := c.WithDefaults(); filled.Validate() != nil {
			t.Errorf("%s with defaults: %v", file, filled.Validate())
		}
		if first, _, _ := strings.Cut(string(text), "\n"); first != "# weir turn gateway -c examples/turn/"+filepath.Base(file) {
			t.Errorf("%s begins with %q", file, first)
		}
	}
}

func TestBadConfigs(t *testing.T) {
	configtest.Bad(t, 45, ":", func(file string, text []byte) error { _, err := decode(file, text); return err })
}

func TestDefaults(t *testing.T) {
	c := Config{Listeners: []ListenerConfig{{Name: "a"}, {Name: "b", Protocol: TLS}}, Clusters: []ClusterConfig{{Name: "c"}}, Lifetimes: LifetimeConfig{Max: 5 * time.Minute}}
	d := c.WithDefaults()
	for what, pair := range map[string][2]any{
		"realm": {d.Realm, "weir"}, "port": {d.Listeners[0].Port, uint16(3478)}, "secure port": {d.Listeners[1].Port, uint16(5349)},
		"address": {d.Listeners[0].Address.String(), "0.0.0.0"}, "relay ports": {d.Listeners[0].RelayPorts.String(), "49152-65535"},
		"refresh": {d.Clusters[0].Refresh, 5 * time.Second}, "lifetime": {d.Lifetimes.Default, 5 * time.Minute}, "drain": {d.Drain.Timeout, time.Hour},
		"mode": {d.Auth.Mode, AuthStatic}, "URI": {d.Listeners[1].URI(), "turns:0.0.0.0:5349?transport=tcp"},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s: %v, want %v", what, pair[0], pair[1])
		}
	}
	if c.Listeners[0].Port != 0 {
		t.Error("WithDefaults changed the original")
	}
}

func TestUnits(t *testing.T) {
	for text, want := range map[string]uint64{"1B": 1, "64kB": 64000, "64KiB": 65536, "1.5MB": 1500000, "2GiB": 2 << 30, "16Mbit": 2000000, "8 kB": 8000} {
		var s ByteSize
		if err := s.UnmarshalText([]byte(text)); err != nil || uint64(s) != want {
			t.Errorf("%s: %d, %v", text, s, err)
		}
		var r ByteRate
		if err := r.UnmarshalText([]byte(text + "/s")); err != nil || uint64(r) != want {
			t.Errorf("%s/s: %d, %v", text, r, err)
		}
	}
	for _, text := range []string{"", "1", "kB", "-1kB", "1XB", "1e30GB", "NaNB", "infB", "0B", "1bit", "1kB/s"} {
		var s ByteSize
		if err := s.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("size %q is %d", text, s)
		}
	}
	for r, want := range map[string]string{"5000-6000": "5000-6000", "7": "7"} {
		var p PortRange
		if err := p.UnmarshalText([]byte(r)); err != nil || p.String() != want || !p.Contains(p.Min) || p.Contains(p.Max+1) {
			t.Errorf("%s: %v, %v", r, p, err)
		}
	}
}

// What a file says arrives in the policy, and the policy is one that the tables take.
func TestPolicy(t *testing.T) {
	text, err := os.ReadFile("../../../examples/turn/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c, err := decode("full.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	c = c.WithDefaults()
	p := c.policy()
	p.NonceKeys = [][]byte{make([]byte, 32)}
	if p.Realm != "example.org" || p.Auth.Mode != allocation.AuthEphemeral || len(p.Auth.Secrets) != 2 || !p.Auth.SHA256 ||
		p.Quotas != (allocation.Quotas{Allocations: 10000, AllocationsPerUser: 20, Permissions: 64, Channels: 64, Connections: 16, Bandwidth: 2e6, Burst: 500000}) {
		t.Errorf("%+v", p)
	}
	if _, err := allocation.NewShared(p, [32]byte{}); err != nil {
		t.Error(err)
	}
	spec, err := c.routes(func(name string) uint16 { return uint16(len(name)) }, func(name string) uint16 { return uint16(name[0]) })
	if err != nil || len(spec.Listeners) != 6 || len(spec.Clusters) != 3 || !spec.Clusters[2].TCP || spec.Clusters[1].Refresh != 10*time.Second || fmt.Sprint(spec.Own) != "[198.51.100.7 2001:db8::1 192.0.2.1 198.51.100.7 10.0.0.4 198.51.100.7]" {
		t.Errorf("%+v", spec)
	}
	status := fmt.Sprintf("%+v", c.Redacted())
	if strings.Contains(status, "long-random-text") || !strings.Contains(fmt.Sprintf("%+v", c), "long-random-text") {
		t.Error("the redacted configuration shows secrets")
	}
}

// pemFiles writes a listener's self-signed certificate and key.
func pemFiles(t *testing.T, name string, now time.Time) (certificate, key string) {
	t.Helper()
	pair, err := selfSigned(&ListenerConfig{}, now)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	certificate, key = filepath.Join(folder, name+".pem"), filepath.Join(folder, name+".key")
	for path, block := range map[string]*pem.Block{certificate: {Type: "CERTIFICATE", Bytes: pair.Certificate[0]}, key: {Type: "PRIVATE KEY", Bytes: der}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certificate, key
}

func TestCertificates(t *testing.T) {
	now := time.Now()
	cert, key := pemFiles(t, "a", now)
	other, otherKey := pemFiles(t, "b", now)
	old, oldKey := pemFiles(t, "old", now.AddDate(-2, 0, 0))
	future, futureKey := pemFiles(t, "future", now.AddDate(2, 0, 0))
	inline, err := os.ReadFile(cert)
	if err != nil {
		t.Fatal(err)
	}
	inlineKey, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		listener ListenerConfig
		want     string // of the error
	}{
		{ListenerConfig{Certificate: cert, Key: key}, ""},
		{ListenerConfig{CertificatePEM: inline, KeyPEM: inlineKey}, ""},
		{ListenerConfig{SelfSigned: true, Public: "turn.example:5349"}, ""},
		{ListenerConfig{Certificate: cert, Key: otherKey}, "listeners[0].key: " + otherKey + " does not fit the certificate " + cert},
		{ListenerConfig{Certificate: other + "x", Key: otherKey}, "listeners[0].certificate: stat"},
		{ListenerConfig{Certificate: other, Key: otherKey + "x"}, "listeners[0].key: stat"},
		{ListenerConfig{Certificate: key, Key: key}, "listeners[0].certificate: " + key + " holds no PEM certificate"},
		{ListenerConfig{Certificate: filepath.Dir(cert), Key: key}, "is a directory; name a regular file"},
		{ListenerConfig{Certificate: old, Key: oldKey}, "ended on"},
		{ListenerConfig{Certificate: future, Key: futureKey}, "begins on"},
	} {
		c.listener.Protocol = TLS
		config := Config{Listeners: []ListenerConfig{c.listener}}
		err := config.CheckCertificates()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error %v, want %s", c.listener, err, c.want)
		}
	}
	pair, err := (&ListenerConfig{SelfSigned: true, Public: "turn.example:5349"}).certificate(now)
	if err != nil || pair.Leaf.VerifyHostname("turn.example") != nil {
		t.Errorf("%v", err)
	}
}

func FuzzConfig(f *testing.F) {
	configtest.Seeds(f, "../../../examples/turn/*.yaml", "testdata/bad/*.yaml")
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 1<<14 {
			return
		}
		c, err := decode("f", text)
		if err != nil {
			return
		}
		c = c.WithDefaults()
		if err := c.Validate(); err != nil {
			t.Fatalf("valid, and with defaults not: %v", err)
		}
		if _, err := c.routes(func(string) uint16 { return 0 }, func(string) uint16 { return 0 }); err != nil {
			t.Fatalf("valid, and routes refuse it: %v", err)
		}
		p := c.policy()
		p.NonceKeys = [][]byte{make([]byte, 32)}
		if _, err := allocation.NewShared(p, [32]byte{}); err != nil {
			t.Fatalf("valid, and the tables refuse it: %v", err)
		}
	})
}
