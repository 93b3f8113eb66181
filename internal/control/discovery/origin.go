package discovery

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/weir-lb/weir/internal/readfile"
)

// Origin is where a server is, and how it is reached.
type Origin struct {
	base   string // http://HOST:PORT or https://HOST:PORT
	socket string // path of a Unix socket; then base is http://weir
}

// ParseOrigin reads http://HOST[:PORT], https://HOST[:PORT] or unix:/PATH.
func ParseOrigin(text string) (Origin, error) {
	bad := func(reason string) (Origin, error) {
		return Origin{}, fmt.Errorf("%q is no config discovery service: %s; write https://HOST:PORT, http://HOST:PORT or unix:/PATH", shortened(text, 80), reason)
	}
	if path, ok := strings.CutPrefix(text, "unix:"); ok {
		if !filepath.IsAbs(path) || len(path) > 100 {
			return bad("the socket has no absolute path of at most 100 bytes")
		}
		return Origin{base: "http://weir", socket: path}, nil
	}
	u, err := url.Parse(text)
	var inner *url.Error
	switch {
	case len(text) > 512:
		return bad("it is too long")
	case errors.As(err, &inner):
		return bad(inner.Err.Error())
	case err != nil:
		return bad(err.Error())
	case u.Scheme != "http" && u.Scheme != "https":
		return bad("the scheme is neither http nor https")
	case u.User != nil:
		return Origin{}, errors.New("a config discovery service takes no user and no password in its address; write --source-token-file FILE")
	case u.Hostname() == "":
		return bad("it has no host")
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "":
		return bad("it has a path or a query")
	}
	return Origin{base: u.Scheme + "://" + u.Host}, nil
}

// IsZero reports whether this is no address.
func (o Origin) IsZero() bool { return o.base == "" }

// String is the text that ParseOrigin reads.
func (o Origin) String() string {
	if o.socket != "" {
		return "unix:" + o.socket
	}
	return o.base
}

// private reports whether what is sent there cannot be read on its way: over TLS, a Unix socket, or to a loopback address.
func (o Origin) private() bool {
	if o.socket != "" || strings.HasPrefix(o.base, "https:") {
		return true
	}
	u, err := url.Parse(o.base)
	if err != nil {
		return false
	}
	address, err := netip.ParseAddr(u.Hostname())
	return u.Hostname() == "localhost" || err == nil && address.IsLoopback()
}

// client makes an HTTP client; the file of authorities is read now. certificate is that of Watcher. No proxy and no redirect: the token is for
// the server alone. Over TLS all requests share a connection (HTTP/2): of several servers behind one address, one gets stream and reports.
func (o Origin) client(caFile string, certificate func() ([]byte, error)) (*http.Client, error) {
	transport := &http.Transport{
		TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: 10 * time.Second, MaxResponseHeaderBytes: 16 << 10,
		DialContext: (&net.Dialer{Timeout: 10 * time.Second}).DialContext, MaxIdleConns: 2, IdleConnTimeout: time.Minute,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true,
	}
	if certificate != nil {
		transport.TLSClientConfig.InsecureSkipVerify = true // names and authorities, in whose place is the certificate
		transport.TLSClientConfig.VerifyConnection = pinned(certificate)
	}
	if o.socket != "" {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, "unix", o.socket)
		}
	}
	if caFile != "" {
		text, err := readfile.Read(caFile, 1<<20)
		if err != nil {
			return nil, fmt.Errorf("authorities of the config discovery service: %w", err)
		}
		transport.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !transport.TLSClientConfig.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s: no certificate in PEM", caFile)
		}
	}
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return errors.New("the service redirects, which is not followed")
	}}, nil
}
