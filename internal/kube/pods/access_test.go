package pods

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// variables is an environment.
func variables(m map[string]string) func(string) string {
	return func(name string) string { return m[name] }
}

// account writes the files of a service account below a root.
func account(t *testing.T, files map[string]string) (root string) {
	t.Helper()
	root = t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestFromEnvironment(t *testing.T) {
	full := map[string]string{serviceAccount + "/token": "t", serviceAccount + "/namespace": "prod\n", serviceAccount + "/ca.crt": "c"}
	for _, c := range []struct {
		name  string
		files map[string]string
		env   map[string]string
		want  Config // files below the root
	}{
		{"nothing", nil, nil, Config{Namespace: "default", host: "https://kubernetes.default.svc"}},
		{
			"a Pod", full,
			map[string]string{"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"},
			Config{Namespace: "prod", host: "https://[fd00::1]:6443", tokenFile: serviceAccount + "/token", caFile: serviceAccount + "/ca.crt"},
		},
		{
			"Californium's variables", full, map[string]string{
				"KUBECTL_HOST": "api:16443", "KUBECTL_TOKEN": "mine", "KUBECTL_NAMESPACE": "lab", "KUBECTL_SELECTOR": "app%3Dcf-extserver", "KUBECTL_TRUSTSTORE": "/mine.pem",
			}, Config{Namespace: "lab", Selector: "app=cf-extserver", host: "https://api:16443", token: "mine", caFile: "/mine.pem"},
		},
		{
			"an empty token is that of the account",
			map[string]string{serviceAccount + "/token": "t", californiumCA: "c"},
			map[string]string{"KUBECTL_HOST": "https://api", "KUBECTL_TOKEN": "", "KUBECTL_SELECTOR_LABEL": "app"},
			Config{Namespace: "default", Label: "app", host: "https://api", tokenFile: serviceAccount + "/token", caFile: californiumCA},
		},
		{"without a token in the clear", nil, map[string]string{"KUBECTL_HOST": "http://localhost:8001"}, Config{Namespace: "default", host: "http://localhost:8001"}},
	} {
		root := account(t, c.files)
		got, err := fromEnvironment("node-1", variables(c.env), root)
		got.tokenFile = strings.TrimPrefix(got.tokenFile, root)
		got.caFile = strings.TrimPrefix(got.caFile, root)
		if c.want.Self = "node-1"; err != nil || got != c.want {
			t.Errorf("%s: %+v, %v, want %+v", c.name, got, err, c.want)
		}
	}
	for _, c := range []struct {
		env  map[string]string
		want string
	}{
		{map[string]string{"KUBECTL_HOST": "http://api", "KUBECTL_TOKEN": "secret"}, "write https://"},
		{map[string]string{"KUBECTL_HOST": "ftp://api"}, "write HOST"},
		{map[string]string{"KUBECTL_SELECTOR": "app%3"}, "write app=coap"},
		{map[string]string{"KUBECTL_SELECTOR": "app in"}, "write app=coap"},
		{map[string]string{"KUBECTL_SELECTOR": "app=a", "KUBECTL_SELECTOR_LABEL": "app"}, "unset one"},
	} {
		if _, err := fromEnvironment("node-1", variables(c.env), t.TempDir()); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v: %v, want %q", c.env, err, c.want)
		}
	}
}

func TestNodeID(t *testing.T) {
	for _, c := range []struct {
		host, variable string
		want           uint32
		ok             bool
	}{
		{"coap-0", "", 0, true},
		{"my-coap-12.coap.default.svc", "", 12, true},
		{"coap-255", "", 255, true},
		{"coap-256", "", 0, false},
		{"coap", "", 0, false},
		{"coap-x7k2p", "", 0, false},
		{"coap", "7", 7, true},
		{"coap-1", "7", 7, true},
		{"coap-1", "x", 0, false},
	} {
		id, err := NodeID(c.host, variables(map[string]string{"KUBECTL_NODE_ID": c.variable}))
		if id != c.want || (err == nil) != c.ok {
			t.Errorf("%q, %q: %d, %v", c.host, c.variable, id, err)
		}
	}
}
