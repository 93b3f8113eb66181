package turncat

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// maxAddressBytes limits the length of every address that is parsed here.
const maxAddressBytes = 2048

// Default ports of TURN URIs (RFC 7065 section 3.2).
const (
	defaultPort       = 3478
	defaultSecurePort = 5349
)

// Transport is the transport protocol to the TURN server.
type Transport string

// The four transports of a TURN server.
const (
	UDP  Transport = "udp"
	TCP  Transport = "tcp"
	TLS  Transport = "tls"
	DTLS Transport = "dtls"
)

func (t Transport) reliable() bool { return t == TCP || t == TLS }

// Server is a TURN server and, if the URI named them, credentials.
type Server struct {
	Host           string // name or address, without brackets
	Port           uint16
	Transport      Transport
	User, Password string
}

// String is the server's URI without its credentials.
func (s Server) String() string {
	return "turn://" + net.JoinHostPort(s.Host, strconv.Itoa(int(s.Port))) + "?transport=" + string(s.Transport)
}

// Gateway is a listener of a gateway in Kubernetes.
type Gateway struct{ Namespace, Name, Listener string }

// IsGateway reports whether a TURN server is written as one in Kubernetes.
func IsGateway(text string) bool {
	scheme, _, _ := strings.Cut(text, ":")
	return strings.EqualFold(scheme, "k8s")
}

// ParseGateway reads k8s://NAMESPACE/GATEWAY:LISTENER, or k8s:///GATEWAY:LISTENER in the namespace default.
func ParseGateway(text string) (Gateway, error) {
	wrong := errors.New("gateway in Kubernetes: write k8s://NAMESPACE/GATEWAY:LISTENER, or k8s:///GATEWAY:LISTENER in the namespace default")
	_, rest, _ := strings.Cut(text, "://")
	namespace, rest, _ := strings.Cut(rest, "/")
	name, listener, _ := strings.Cut(rest, ":")
	if namespace == "" {
		namespace = "default"
	}
	if !IsGateway(text) || len(text) > maxAddressBytes {
		return Gateway{}, wrong
	}
	for _, part := range []string{namespace, name, listener} {
		if part == "" || strings.Trim(part, "abcdefghijklmnopqrstuvwxyz0123456789-.") != "" {
			return Gateway{}, wrong
		}
	}
	return Gateway{namespace, name, listener}, nil
}

// String is the gateway as it is written.
func (g Gateway) String() string { return "k8s://" + g.Namespace + "/" + g.Name + ":" + g.Listener }

// ErrKubernetes is returned by ParseServer for the k8s:// forms of a TURN server, which only ParseGateway reads.
var ErrKubernetes = errors.New("k8s:// is a gateway in Kubernetes, whose address and credentials are looked up; write turn://USER:PASSWORD@HOST:PORT?transport=udp")

// ParseServer reads turn://user:password@host:port?transport=udp|tcp|tls|dtls as STUNner writes it (default port 3478), and
// turn:host:port?transport=udp|tcp and turns:host:port?transport=tcp|udp of RFC 7065, where turns is TLS over TCP or DTLS over UDP
// (default port 5349). Credentials are percent-decoded; errors never show them.
func ParseServer(text string) (Server, error) {
	scheme, rest, found := strings.Cut(text, ":")
	scheme = strings.ToLower(scheme)
	switch {
	case len(text) > maxAddressBytes:
		return Server{}, fmt.Errorf("TURN URI: %d bytes are too many, at most %d", len(text), maxAddressBytes)
	case scheme == "k8s":
		return Server{}, ErrKubernetes
	case !found || scheme != "turn" && scheme != "turns":
		return Server{}, errors.New("TURN URI: write turn://USER:PASSWORD@HOST:PORT?transport=udp, or turn:HOST:PORT, or turns:HOST:PORT")
	}
	rest = strings.TrimPrefix(rest, "//")
	rest, query, _ := strings.Cut(rest, "?")
	s := Server{Transport: UDP}
	if scheme == "turns" {
		s.Transport = TLS
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		if err := s.userinfo(rest[:at]); err != nil {
			return Server{}, err
		}
		rest = rest[at+1:]
	}
	if err := s.transport(scheme, query); err != nil {
		return Server{}, err
	}
	port := uint16(defaultPort)
	if scheme == "turns" {
		port = defaultSecurePort
	}
	var err error
	if s.Host, s.Port, err = hostPort(strings.TrimSuffix(rest, "/"), port); err != nil {
		return Server{}, fmt.Errorf("TURN URI: %w", err)
	}
	return s, nil
}

func (s *Server) userinfo(text string) (err error) {
	user, password, _ := strings.Cut(text, ":")
	if s.User, err = url.PathUnescape(user); err == nil {
		s.Password, err = url.PathUnescape(password)
	}
	if err != nil || s.User == "" {
		return errors.New("TURN URI: write credentials as USER:PASSWORD@, with %XX for : @ / ? and %, or use --user and --password")
	}
	return nil
}

func (s *Server) transport(scheme, query string) error {
	for query != "" {
		var pair string
		pair, query, _ = strings.Cut(query, "&")
		key, value, _ := strings.Cut(pair, "=")
		t := Transport(strings.ToLower(value))
		switch {
		case strings.ToLower(key) != "transport":
			return fmt.Errorf("TURN URI: no parameter %q; there is only transport", key)
		case t != UDP && t != TCP && t != TLS && t != DTLS:
			return fmt.Errorf("TURN URI: no transport %q; write udp, tcp, tls or dtls", value)
		case scheme == "turns" && t == TCP:
			t = TLS
		case scheme == "turns" && t == UDP:
			t = DTLS
		}
		s.Transport = t
	}
	return nil
}

// hostPort splits host, host:port, [v6] and [v6]:port. With def 0, a port is required.
func hostPort(text string, def uint16) (host string, port uint16, err error) {
	host, service := text, ""
	if i := strings.LastIndexByte(text, ':'); i >= 0 && !strings.HasSuffix(text, "]") {
		host, service = text[:i], text[i+1:]
	}
	inner, bracketed := strings.CutPrefix(host, "[")
	if bracketed {
		if host, bracketed = strings.CutSuffix(inner, "]"); !bracketed {
			return "", 0, fmt.Errorf("%q: a bracket is missing; write [2001:db8::1]:3478", text)
		}
		if a, err := netip.ParseAddr(host); err != nil || !a.Is6() {
			return "", 0, fmt.Errorf("%q: in brackets stands an IPv6 address, such as [2001:db8::1]", text)
		}
	} else if strings.ContainsAny(host, ":[]/@ \t\r\n\x00") {
		return "", 0, fmt.Errorf("%q is not HOST:PORT; IPv6 addresses stand in brackets", text)
	}
	if service == "" {
		if def == 0 || strings.HasSuffix(text, ":") {
			return "", 0, fmt.Errorf("%q has no port", text)
		}
		return host, def, need(host, text)
	}
	n, err := strconv.ParseUint(service, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("%q: write a port from 1 to 65535", text)
	}
	return host, uint16(n), nil
}

func need(host, text string) error {
	if host == "" {
		return fmt.Errorf("%q has no host", text)
	}
	return nil
}

// Kind is the type of the socket that clients connect to.
type Kind string

// The kinds of a Listen; a Peer is KindUDP or KindTCP.
const (
	KindUDP   Kind = "udp"
	KindTCP   Kind = "tcp"
	KindUnix  Kind = "unix"
	KindStdio Kind = "stdio"
)

// Endpoint is the address that clients connect to, or that of the peer.
type Endpoint struct {
	Kind Kind
	Host string // name or address; empty: every address (UDP and TCP listeners only)
	Port uint16
	Path string // of a Unix socket
}

func (e Endpoint) String() string {
	switch e.Kind {
	case KindUnix:
		return "unix://" + e.Path
	case KindStdio:
		return "file://stdin"
	}
	return string(e.Kind) + "://" + net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port)))
}

// ParseListen reads udp://ip:port, tcp://ip:port, unix://path, "-" and file://stdin. Port 0 lets the kernel choose.
func ParseListen(text string) (Endpoint, error) {
	switch path, isUnix := strings.CutPrefix(text, "unix://"); {
	case len(text) > maxAddressBytes:
		return Endpoint{}, fmt.Errorf("LISTEN: %d bytes are too many, at most %d", len(text), maxAddressBytes)
	case text == "-" || text == "file://stdin" || text == "file:///dev/stdin":
		return Endpoint{Kind: KindStdio}, nil
	case isUnix && (path == "" || len(path) > 107 || strings.ContainsRune(path, 0)):
		return Endpoint{}, fmt.Errorf("LISTEN %q: write unix:///path/of/socket, of at most 107 bytes", text)
	case isUnix:
		return Endpoint{Kind: KindUnix, Path: path}, nil
	}
	e, err := parseEndpoint(text)
	if err != nil {
		return Endpoint{}, fmt.Errorf("LISTEN: %w; or write unix://PATH, or - for standard input", err)
	}
	return e, nil
}

// ParsePeer reads udp://host:port and tcp://host:port.
func ParsePeer(text string) (Endpoint, error) {
	e, err := parseEndpoint(text)
	if err == nil && e.Port == 0 {
		err = fmt.Errorf("%q: write a port from 1 to 65535", text)
	}
	if err == nil {
		err = need(e.Host, text)
	}
	if err != nil {
		return Endpoint{}, fmt.Errorf("PEER: %w", err)
	}
	return e, nil
}

func parseEndpoint(text string) (Endpoint, error) {
	scheme, rest, found := strings.Cut(text, "://")
	kind := Kind(strings.ToLower(scheme))
	switch {
	case len(text) > maxAddressBytes:
		return Endpoint{}, fmt.Errorf("%d bytes are too many, at most %d", len(text), maxAddressBytes)
	case kind == "k8s":
		return Endpoint{}, ErrKubernetes
	case !found || kind != KindUDP && kind != KindTCP:
		return Endpoint{}, fmt.Errorf("%q: write udp://HOST:PORT or tcp://HOST:PORT", text)
	}
	host, port, err := hostPort(rest, 0)
	if err != nil {
		return Endpoint{}, err
	}
	return Endpoint{Kind: kind, Host: host, Port: port}, nil
}
