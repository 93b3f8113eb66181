package pods

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
)

// Config says which Pods are followed, and where the API server is.
type Config struct {
	Self      string // name of this process's Pod
	Namespace string
	Selector  string // label selector; empty: see Label
	Label     string // the Pods that have the same value of this label as Self; empty, as Selector: those of the same controller
	Log       *slog.Logger
	Progress  *Progress // nil: not counted

	host      string // URL of the API server
	token     string // bearer token; empty: see tokenFile
	tokenFile string // read again when it changes; empty: there is none
	caFile    string // certificates that the server's is verified with; empty: those of the system
}

const (
	serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount"
	californiumCA  = "/etc/certs/https_k8s_client_trust.pem"
	defaultHost    = "kubernetes.default.svc"
)

// FromEnvironment reads KUBECTL_HOST, KUBECTL_TOKEN, KUBECTL_NAMESPACE, KUBECTL_SELECTOR, KUBECTL_SELECTOR_LABEL and
// KUBECTL_TRUSTSTORE, and takes what is not set from the service account of the Pod, whose name is hostname.
func FromEnvironment(hostname string, getenv func(string) string) (Config, error) {
	return fromEnvironment(hostname, getenv, "/")
}

// fromEnvironment is FromEnvironment with the files below root.
func fromEnvironment(hostname string, getenv func(string) string, root string) (c Config, err error) {
	account := filepath.Join(root, serviceAccount)
	c = Config{Self: hostname, Label: getenv("KUBECTL_SELECTOR_LABEL"), token: getenv("KUBECTL_TOKEN")}
	if c.Selector, err = selector(getenv("KUBECTL_SELECTOR")); err != nil {
		return c, err
	}
	if c.Selector != "" && c.Label != "" {
		return c, errors.New("KUBECTL_SELECTOR and KUBECTL_SELECTOR_LABEL exclude each other; unset one")
	}
	if c.Namespace = getenv("KUBECTL_NAMESPACE"); c.Namespace == "" {
		c.Namespace = cmp.Or(strings.TrimSpace(string(contents(filepath.Join(account, "namespace")))), metav1.NamespaceDefault)
	}
	if file := filepath.Join(account, "token"); c.token == "" && exists(file) {
		c.tokenFile = file
	}
	c.caFile = getenv("KUBECTL_TRUSTSTORE")
	for _, file := range []string{filepath.Join(account, "ca.crt"), filepath.Join(root, californiumCA)} {
		if c.caFile == "" && exists(file) {
			c.caFile = file
		}
	}
	c.host, err = server(getenv)
	if err == nil && strings.HasPrefix(c.host, "http://") && (c.token != "" || c.tokenFile != "") {
		err = fmt.Errorf("KUBECTL_HOST: %s would send the token in the clear; write https://", c.host)
	}
	return c, err
}

// selector reads a label selector, which Californium's manifests write percent-encoded, such as app%3Dcoap.
func selector(text string) (string, error) {
	plain, err := url.PathUnescape(text)
	if err == nil {
		_, err = labels.Parse(plain)
	}
	if err != nil {
		return "", fmt.Errorf("KUBECTL_SELECTOR: %q is no label selector; write app=coap: %w", text, err)
	}
	return plain, nil
}

// server returns the URL of the API server.
func server(getenv func(string) string) (string, error) {
	host := getenv("KUBECTL_HOST")
	if address := getenv("KUBERNETES_SERVICE_HOST"); host == "" && address != "" {
		host = net.JoinHostPort(address, cmp.Or(getenv("KUBERNETES_SERVICE_PORT"), "443"))
	}
	host = cmp.Or(host, defaultHost)
	if !strings.Contains(host, "://") {
		host = "https://" + host
	}
	parsed, err := url.Parse(host)
	if err != nil || parsed.Host == "" || parsed.Scheme != "https" && parsed.Scheme != "http" {
		return "", fmt.Errorf("KUBECTL_HOST: %q is no server; write HOST, HOST:PORT or https://HOST:PORT", host)
	}
	return host, nil
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

func contents(file string) []byte {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	return text
}

// client makes a client for the Pods of the API server. It knows no other kind, so that the others are not in the binary.
func (c *Config) client() (*rest.RESTClient, error) {
	return c.Client("/api", corev1.SchemeGroupVersion, corev1.AddToScheme)
}

// Client makes a client for a group of kinds, which add makes known, below a path of the API server.
func (c *Config) Client(path string, group schema.GroupVersion, add func(*runtime.Scheme) error) (*rest.RESTClient, error) {
	scheme := runtime.NewScheme()
	if err := add(scheme); err != nil {
		return nil, err
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	client, err := rest.RESTClientFor(&rest.Config{
		Host: c.host, APIPath: path, BearerToken: c.token, BearerTokenFile: c.tokenFile, UserAgent: "weir", Dial: dial, QPS: requests, Burst: 2 * requests,
		TLSClientConfig: rest.TLSClientConfig{CAFile: c.caFile}, WarningHandler: rest.NoWarnings{},
		ContentConfig: rest.ContentConfig{
			GroupVersion: &group, NegotiatedSerializer: serializer.NewCodecFactory(scheme).WithoutConversion(),
		},
	})
	if err != nil {
		return nil, fmt.Errorf("API server %s: %w", c.host, err)
	}
	return client, nil
}

const (
	requests    = 50 // a second
	dialTimeout = 2 * time.Second
	deadAfter   = 4 * time.Second
)

// dial connects to the API server. A connection over which nothing arrives is given up by the kernel after deadAfter: without that, requests
// would go to an API server that has vanished until HTTP/2 gives it up, after 45 s.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{
		Timeout:         dialTimeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: deadAfter / 4, Interval: deadAfter / 4, Count: 3},
		Control: func(_, _ string, c syscall.RawConn) error {
			return c.Control(func(fd uintptr) {
				_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(deadAfter.Milliseconds())) // without it, it takes longer
			})
		},
	}
	return d.DialContext(ctx, network, address)
}

// NodeID returns the node id of a Pod: KUBECTL_NODE_ID, or the number behind the last dash of its name, the ordinal of a StatefulSet.
func NodeID(hostname string, getenv func(string) string) (uint32, error) {
	text, from := getenv("KUBECTL_NODE_ID"), "KUBECTL_NODE_ID"
	if text == "" {
		host, _, _ := strings.Cut(hostname, ".")
		text, from = host[strings.LastIndexByte(host, '-')+1:], "host name "+strconv.Quote(hostname)
	}
	id, err := strconv.ParseUint(text, 10, 8)
	if err != nil {
		return 0, fmt.Errorf("%s holds no node id of 0 to 255; run the node in a StatefulSet, whose Pods are named NAME-0, NAME-1 and so on, or set KUBECTL_NODE_ID", from)
	}
	return uint32(id), nil
}

// StatefulSet returns the name of the StatefulSet that a Pod with this host name is of.
func StatefulSet(hostname string) (name string, ok bool) {
	host, _, _ := strings.Cut(hostname, ".")
	dash := strings.LastIndexByte(host, '-')
	if dash <= 0 {
		return "", false
	}
	_, err := strconv.ParseUint(host[dash+1:], 10, 31)
	return host[:dash], err == nil
}
