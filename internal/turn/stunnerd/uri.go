package stunnerd

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/weir-lb/weir/internal/turn/gateway"
)

// FromURI is a gateway with one listener, one user and one open cluster, as a turn URI names them:
//
//	turn://USER:PASSWORD@ADDRESS:PORT?transport=udp|tcp|tls|dtls
//
// turns means tls, or with transport=udp dtls. ADDRESS may be left out (every address), PORT too (3478). tls and dtls
// make their own certificate at start. peers are the endpoints of UDP peers, tcp those of TCP peers; no peers at all
// means every one that is not refused by default.
func FromURI(uri string, peers, tcp []string) (gateway.Config, error) {
	scheme, rest, ok := strings.Cut(uri, ":")
	if scheme = strings.ToLower(scheme); !ok || scheme != "turn" && scheme != "turns" {
		return gateway.Config{}, fmt.Errorf("%s: no TURN URI; write turn://USER:PASSWORD@ADDRESS:PORT?transport=udp", withoutPassword(uri))
	}
	if !strings.HasPrefix(rest, "//") { // RFC 7065 has no slashes
		rest = "//" + rest
	}
	parsed, err := url.Parse(scheme + ":" + rest)
	if err != nil {
		var inner *url.Error
		if errors.As(err, &inner) {
			err = inner.Err // without the URI: it holds the password
		}
		return gateway.Config{}, fmt.Errorf("TURN URI: %w; write turn://USER:PASSWORD@ADDRESS:PORT?transport=udp, with %%40 for an @ in the password", err)
	}
	listener, err := uriListener(scheme, parsed)
	if err != nil {
		return gateway.Config{}, fmt.Errorf("%s: %w", parsed.Redacted(), err)
	}
	password, ok := parsed.User.Password()
	if !ok || password == "" || parsed.User.Username() == "" {
		return gateway.Config{}, fmt.Errorf("%s: no user with a password; write turn://USER:PASSWORD@%s", parsed.Redacted(), parsed.Host)
	}
	if len(peers)+len(tcp) == 0 {
		peers = []string{"0.0.0.0/0", "::/0"}
	}
	config := gateway.Config{
		Realm: defaultRealm,
		Auth:  gateway.AuthConfig{Mode: gateway.AuthStatic, Users: []gateway.UserConfig{{Name: parsed.User.Username(), Password: password}}},
	}
	for _, c := range []gateway.ClusterConfig{{Name: "peers", Endpoints: peers}, {Name: "tcp-peers", Protocol: gateway.TCP, Endpoints: tcp}} {
		if len(c.Endpoints) > 0 {
			config.Clusters = append(config.Clusters, c)
			listener.Routes = append(listener.Routes, c.Name)
		}
	}
	config.Listeners = []gateway.ListenerConfig{listener}
	return config, config.Validate()
}

func uriListener(scheme string, u *url.URL) (l gateway.ListenerConfig, err error) {
	if u.Path != "" && u.Path != "/" || u.Fragment != "" {
		return l, errors.New("there is no path in a TURN URI; remove it")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return l, errors.New("the part behind ? cannot be read; write ?transport=udp")
	}
	for key, values := range query {
		if key != "transport" || len(values) != 1 {
			return l, fmt.Errorf("no parameter %q; write one transport=udp, tcp, tls or dtls", key)
		}
	}
	transport := strings.ToLower(query.Get("transport"))
	switch {
	case transport == "" && scheme == "turns", transport == "tcp" && scheme == "turns":
		transport = "tls"
	case transport == "":
		transport = "udp"
	case transport == "udp" && scheme == "turns":
		transport = "dtls"
	}
	l.Protocol = gateway.Protocol(transport)
	switch l.Protocol {
	case gateway.UDP, gateway.TCP, gateway.TLS, gateway.DTLS:
	default:
		return l, fmt.Errorf("no transport %q; write udp, tcp, tls or dtls", transport)
	}
	l.Name, l.SelfSigned, l.Port = transport, l.Protocol.Secure(), gateway.DefaultPort
	if text := u.Port(); text != "" {
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil || port == 0 {
			return l, fmt.Errorf("no port %q; write a number from 1 to 65535", text)
		}
		l.Port = uint16(port)
	}
	switch host := u.Hostname(); host {
	case "":
		l.Address = netip.IPv4Unspecified()
	case "localhost":
		l.Address = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	default:
		if l.Address, err = netip.ParseAddr(host); err != nil {
			return l, fmt.Errorf("%q is no address to listen at; write one of this host, or 0.0.0.0", host)
		}
	}
	return l, nil
}

// withoutPassword removes what is between the first colon behind a user and the @.
func withoutPassword(uri string) string {
	before, after, found := strings.Cut(uri, "@")
	if !found {
		return uri
	}
	if i := strings.LastIndexByte(before, ':'); i > 0 {
		before = before[:i] + ":xxxxx"
	}
	return before + "@" + after
}
