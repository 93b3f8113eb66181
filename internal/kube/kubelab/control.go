package kubelab

import (
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
	"time"

	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/programs"
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

// Programs are those of a control plane, below Directory.
func Programs() []string { return []string{"etcd", "kube-apiserver", "kube-controller-manager"} }

// Paths are where the programs of a control plane are.
func Paths() (all []string) {
	for _, name := range Programs() {
		all = append(all, filepath.Join(Directory(), name))
	}
	return all
}

// Available says which program is missing.
func Available() error {
	for _, path := range Paths() {
		if _, err := exec.LookPath(path); err != nil {
			return fmt.Errorf("the control plane of Kubernetes is not there: build it with make kubelab, or name its directory in WEIR_KUBELAB: %w", err)
		}
	}
	return nil
}

// controllers are those of kube-controller-manager that run. Pods are bound to the node by the kubelet, so there is no scheduler.
var controllers = []string{
	"deployment-controller", "replicaset-controller", "statefulset-controller", "daemonset-controller", "namespace-controller", "serviceaccount-controller",
	"root-ca-certificate-publisher-controller", "endpointslice-controller", "disruption-controller", "garbage-collector-controller",
}

// ControlPlane is a running API server with its controllers.
type ControlPlane struct {
	options Options
	ctx     context.Context // of all requests
	address netip.AddrPort
	http    *http.Client
	running *programs.Group
	server  *exec.Cmd // of the API server
	outputs map[string]*programs.LastLines
}

// Options say where a control plane runs.
type Options struct {
	Host    *netlab.Host
	Address netip.Addr                       // of Host
	Files   string                           // an empty directory, for its data and for Pods
	Log     func(format string, args ...any) // what the kubelet cannot do
}

// Start runs a control plane until Stop. Requests to it fail once ctx has ended.
func Start(ctx context.Context, o Options) (started *ControlPlane, err error) {
	c := &ControlPlane{options: o, ctx: ctx, address: netip.AddrPortFrom(o.Address, apiPort), running: programs.NewGroup(), outputs: map[string]*programs.LastLines{}}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, c.Output())
			c.Stop()
		}
	}()
	if err := c.writeFiles(); err != nil {
		return nil, err
	}
	if _, err := c.run("etcd", "--data-dir", c.file("etcd"), "--listen-client-urls", "http://127.0.0.1:2379", "--advertise-client-urls", "http://127.0.0.1:2379",
		"--listen-peer-urls", "http://127.0.0.1:2380", "--unsafe-no-fsync", "--log-level", "error"); err != nil {
		return nil, err
	}
	if c.server, err = c.run("kube-apiserver", "--etcd-servers", "http://127.0.0.1:2379", "--bind-address", o.Address.String(), "--advertise-address", o.Address.String(),
		"--secure-port", fmt.Sprint(apiPort), "--cert-dir", c.file("certificates"), "--token-auth-file", c.file("tokens"), "--authorization-mode", "RBAC",
		"--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file", c.file("key.pem"), "--service-account-signing-key-file", c.file("key.pem"),
		"--audit-policy-file", c.file("audit-policy"), "--audit-log-path", c.file("audit"), "--service-cluster-ip-range", "10.96.0.0/16", "--allow-privileged"); err != nil {
		return nil, err
	}
	if err := c.connect(); err != nil {
		return nil, err
	}
	_, err = c.run("kube-controller-manager", "--kubeconfig", c.file("kubeconfig"), "--leader-elect=false", "--secure-port", "0", "--kube-api-qps", "200", "--kube-api-burst", "400",
		"--service-account-private-key-file", c.file("key.pem"), "--root-ca-file", c.CAFile(), "--use-service-account-credentials=false", "--controllers", strings.Join(controllers, ","))
	return c, err
}

// Stop kills the control plane.
func (c *ControlPlane) Stop() { c.running.End() }

// Output is the end of what the programs of the control plane have written.
func (c *ControlPlane) Output() string {
	var all strings.Builder
	for _, name := range Programs() {
		if lines := c.outputs[name]; lines != nil {
			fmt.Fprintf(&all, "%s:%s\n", name, lines.LastOutput())
		}
	}
	return all.String()
}

// connect waits until the API server is ready.
func (c *ControlPlane) connect() error {
	pool := x509.NewCertPool()
	if err := c.Await("the API server has a certificate", func() bool {
		text, err := os.ReadFile(c.CAFile())
		return err == nil && pool.AppendCertsFromPEM(text)
	}); err != nil {
		return err
	}
	if c.http != nil { // it was started again
		return c.Await("the API server is ready", func() bool { return c.request(http.MethodGet, "/readyz", "", nil, nil) == nil })
	}
	c.http = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "kubernetes.default.svc"}, MaxIdleConnsPerHost: 32,
		DialContext: func(context.Context, string, string) (connection net.Conn, err error) {
			err = c.options.Host.Do(func() (err error) {
				connection, err = net.DialTimeout("tcp", c.address.String(), 5*time.Second)
				return err
			})
			return connection, err
		},
	}}
	return c.Await("the API server is ready", func() bool { return c.request(http.MethodGet, "/readyz", "", nil, nil) == nil })
}

// within is long enough for a machine that does much else.
const within = 90 * time.Second

// Await waits until is returns true, for a minute and a half. what completes the sentence "did not happen: …".
func (c *ControlPlane) Await(what string, is func() bool) error {
	pause := time.Millisecond
	for end := time.Now().Add(within); !is(); pause = min(2*pause, 50*time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("did not happen within %v: %s", within, what)
		}
		if err := programs.Sleep(c.ctx, pause); err != nil {
			return err
		}
	}
	return nil
}

func (c *ControlPlane) file(name string) string { return filepath.Join(c.options.Files, name) }

// CAFile holds the certificate that the API server's is verified with.
func (c *ControlPlane) CAFile() string { return c.file("certificates/apiserver.crt") }

// Kubeconfig is a file with which an administrator reaches the API server, from the namespace in which it listens.
func (c *ControlPlane) Kubeconfig() string { return c.file("kubeconfig") }

// Address is where the API server listens.
func (c *ControlPlane) Address() netip.AddrPort { return c.address }

// auditPolicy records what service accounts request: which verbs on which resources.
const auditPolicy = `{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": [
	{"level": "Metadata", "userGroups": ["system:serviceaccounts"]}, {"level": "None"}
]}`

// writeFiles makes the key of service account tokens, the administrator's token, and the policy of the audit log.
func (c *ControlPlane) writeFiles() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	kubeconfig := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
		"clusters": [{"name": "c", "cluster": {"server": "https://%s", "certificate-authority": %q}}], "users": [{"name": "u", "user": {"token": %q}}]}`, c.address, c.CAFile(), adminToken)
	for name, text := range map[string][]byte{
		"key.pem":      pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}),
		"tokens":       []byte(adminToken + `,admin,admin,"system:masters"` + "\n"),
		"kubeconfig":   []byte(kubeconfig),
		"audit-policy": []byte(auditPolicy),
	} {
		if err := os.WriteFile(c.file(name), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// run starts a program of the control plane.
func (c *ControlPlane) run(program string, args ...string) (*exec.Cmd, error) {
	output := &programs.LastLines{}
	c.outputs[program] = output
	cmd := exec.Command(filepath.Join(Directory(), program), args...)
	cmd.Stdout, cmd.Stderr = output, output
	cmd.Env = append(os.Environ(), "GOGC=400") // they live for a minute, which begins with most of what they allocate
	return cmd, c.running.Start(c.options.Host, cmd)
}

// PID is the process of the API server.
func (c *ControlPlane) PID() int { return c.server.Process.Pid }

// Kill kills the API server. again starts it as it was, and waits until it is ready.
func (c *ControlPlane) Kill() (again func() error, err error) {
	if err := c.server.Process.Kill(); err != nil {
		return nil, err
	}
	_ = c.server.Wait() // killed
	c.running.Forget(c.server)
	args := c.server.Args[1:]
	return func() (err error) {
		if c.server, err = c.run("kube-apiserver", args...); err != nil {
			return err
		}
		return c.connect()
	}, nil
}

// Pause stops the API server, as one that is away, until resume is called.
func (c *ControlPlane) Pause() (resume func() error, err error) {
	return func() error { return c.server.Process.Signal(syscall.SIGCONT) }, c.server.Process.Signal(syscall.SIGSTOP)
}
