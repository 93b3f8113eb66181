package kubetest

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// Directory is where the programs of the control plane are: $WEIR_KUBELAB, or where .ci/deps puts them.
func Directory() string {
	if directory := os.Getenv("WEIR_KUBELAB"); directory != "" {
		return directory
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(cache, "weir", "kubelab")
}

const (
	apiPort    = 6443
	adminToken = "administrator"
)

// ControlPlane is a running API server with its controllers.
type ControlPlane struct {
	t       testing.TB
	address netip.AddrPort
	files   string // its directory
	http    *http.Client
	server  *exec.Cmd // of the API server
}

// Start runs a control plane in host, whose address is, until the test ends. It skips the test where its programs are missing; with
// WEIR_ROOT=1 it fails it.
func Start(t testing.TB, host *netlab.Host, address netip.Addr) *ControlPlane {
	t.Helper()
	directory := Directory()
	netlabtest.Tools(t, filepath.Join(directory, "etcd"), filepath.Join(directory, "kube-apiserver"), filepath.Join(directory, "kube-controller-manager"))
	c := &ControlPlane{t: t, address: netip.AddrPortFrom(address, apiPort), files: t.TempDir()}
	c.writeKeys()
	c.run(host, "etcd", "--data-dir", c.file("etcd"), "--listen-client-urls", "http://127.0.0.1:2379", "--advertise-client-urls", "http://127.0.0.1:2379",
		"--listen-peer-urls", "http://127.0.0.1:2380", "--unsafe-no-fsync", "--log-level", "error")
	c.server = c.run(host, "kube-apiserver", "--etcd-servers", "http://127.0.0.1:2379", "--bind-address", address.String(), "--advertise-address", address.String(),
		"--secure-port", fmt.Sprint(apiPort), "--cert-dir", c.file("certificates"), "--token-auth-file", c.file("tokens"), "--authorization-mode", "RBAC",
		"--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file", c.file("key.pem"), "--service-account-signing-key-file", c.file("key.pem"),
		"--service-cluster-ip-range", "10.96.0.0/24", "--allow-privileged")
	c.http = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: c.authorities(), ServerName: "kubernetes.default.svc"},
		DialContext: func(context.Context, string, string) (connection net.Conn, err error) {
			err = host.Do(func() (err error) {
				connection, err = net.DialTimeout("tcp", c.address.String(), 5*time.Second)
				return err
			})
			return connection, err
		},
	}}
	netlabtest.Eventually(t, "the API server is ready", func() bool { return c.request(http.MethodGet, "/readyz", "", nil, nil) == nil })
	c.run(host, "kube-controller-manager", "--kubeconfig", c.file("kubeconfig"), "--leader-elect=false", "--secure-port", "0", "--kube-api-qps", "200", "--kube-api-burst", "400",
		"--service-account-private-key-file", c.file("key.pem"), "--root-ca-file", c.CAFile(), "--use-service-account-credentials=false",
		"--controllers", "deployment-controller,replicaset-controller,namespace-controller,statefulset-controller,serviceaccount-controller,root-ca-certificate-publisher-controller,endpointslice-controller,disruption-controller,garbage-collector-controller")
	return c
}

func (c *ControlPlane) file(name string) string { return filepath.Join(c.files, name) }

// CAFile holds the certificate that the API server's is verified with.
func (c *ControlPlane) CAFile() string { return c.file("certificates/apiserver.crt") }

// Kubeconfig is a file with which an administrator reaches the API server, from the namespace in which it listens.
func (c *ControlPlane) Kubeconfig() string { return c.file("kubeconfig") }

// Address is where the API server listens.
func (c *ControlPlane) Address() netip.AddrPort { return c.address }

// writeKeys makes the key of service account tokens, and the administrator's token.
func (c *ControlPlane) writeKeys() {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		c.t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		c.t.Fatal(err)
	}
	kubeconfig := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
		"clusters": [{"name": "c", "cluster": {"server": "https://%s", "certificate-authority": %q}}], "users": [{"name": "u", "user": {"token": %q}}]}`, c.address, c.CAFile(), adminToken)
	for name, text := range map[string][]byte{
		"key.pem":    pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}),
		"tokens":     []byte(adminToken + `,admin,admin,"system:masters"` + "\n"),
		"kubeconfig": []byte(kubeconfig),
	} {
		if err := os.WriteFile(c.file(name), text, 0o600); err != nil {
			c.t.Fatal(err)
		}
	}
}

// authorities waits until the API server has made its certificate.
func (c *ControlPlane) authorities() *x509.CertPool {
	pool := x509.NewCertPool()
	netlabtest.Eventually(c.t, "the API server has a certificate", func() bool {
		text, err := os.ReadFile(c.CAFile())
		return err == nil && pool.AppendCertsFromPEM(text)
	})
	return pool
}

// run starts a program of the control plane, which is killed when the test ends.
func (c *ControlPlane) run(host *netlab.Host, program string, args ...string) *exec.Cmd {
	c.t.Helper()
	var output bytes.Buffer
	cmd := exec.Command(filepath.Join(Directory(), program), args...)
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := host.Start(cmd); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		if err := cmd.Process.Kill(); err != nil {
			c.t.Errorf("%s: %v", program, err)
		}
		_ = cmd.Wait() // killed
		if c.t.Failed() {
			lines := strings.Split(output.String(), "\n")
			c.t.Logf("end of the output of %s:\n%s", program, strings.Join(lines[max(0, len(lines)-15):], "\n"))
		}
	})
	return cmd
}

// Pause stops the API server, as one that is away, until resume is called.
func (c *ControlPlane) Pause() (resume func()) {
	c.t.Helper()
	signal := func(s syscall.Signal) {
		if err := c.server.Process.Signal(s); err != nil {
			c.t.Error(err)
		}
	}
	signal(syscall.SIGSTOP)
	return func() { signal(syscall.SIGCONT) }
}
