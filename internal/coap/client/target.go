package client

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/weir-lb/weir/internal/coap/message"
)

// Target is a parsed CoAP URI (RFC 7252 section 6).
type Target struct {
	Secure bool     // coaps, coaps+tcp
	Stream bool     // coap+tcp, coaps+tcp (RFC 8323)
	Host   string   // as written, without brackets
	Port   uint16   // 5683 or 5684 when not written
	Path   []string // decoded segments; a single trailing empty one for ".../"
	Query  []string // decoded arguments
}

// ParseTarget reads coap://host[:port][/path][?query], or with the scheme coaps, coap+tcp or coaps+tcp.
func ParseTarget(uri string) (Target, error) {
	u, err := url.Parse(escapeZone(uri))
	if err != nil {
		return Target{}, fmt.Errorf("URI %q: %w", uri, err)
	}
	t := Target{Host: u.Hostname()}
	switch strings.ToLower(u.Scheme) {
	case "coap":
		t.Port = 5683
	case "coaps":
		t.Secure, t.Port = true, 5684
	case "coap+tcp":
		t.Stream, t.Port = true, 5683
	case "coaps+tcp":
		t.Stream, t.Secure, t.Port = true, true, 5684
	default:
		return Target{}, fmt.Errorf("URI %q: scheme %q; write coap://host/path or coaps://host/path, or coap+tcp or coaps+tcp", uri, u.Scheme)
	}
	if t.Host == "" {
		return Target{}, fmt.Errorf("URI %q: no host; write %s://host/path", uri, u.Scheme)
	}
	if u.Fragment != "" || u.User != nil {
		return Target{}, fmt.Errorf("URI %q: a CoAP URI has no fragment and no user (RFC 7252 section 6.1)", uri)
	}
	if p := u.Port(); p != "" {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return Target{}, fmt.Errorf("URI %q: port %q must be 1 to 65535", uri, p)
		}
		t.Port = uint16(n)
	}
	if err := t.split(u); err != nil {
		return Target{}, fmt.Errorf("URI %q: %w", uri, err)
	}
	return t, nil
}

// escapeZone lets the zone of an IPv6 address be written as everywhere else, [ff02::fd%eth0], and as in RFC 6874, [ff02::fd%25eth0].
func escapeZone(uri string) string {
	open, end := strings.IndexByte(uri, '['), strings.IndexByte(uri, ']')
	if open < 0 || end < open {
		return uri
	}
	at := strings.IndexByte(uri[open:end], '%')
	if at < 0 || strings.HasPrefix(uri[open+at:], "%25") {
		return uri
	}
	return uri[:open+at] + "%25" + uri[open+at+1:]
}

func (t *Target) split(u *url.URL) error {
	if path := u.EscapedPath(); path != "" && path != "/" {
		for _, segment := range strings.Split(strings.TrimPrefix(path, "/"), "/") {
			decoded, err := url.PathUnescape(segment)
			if err != nil {
				return err
			}
			t.Path = append(t.Path, decoded)
		}
	}
	if u.RawQuery != "" {
		for _, argument := range strings.Split(u.RawQuery, "&") {
			decoded, err := url.PathUnescape(argument)
			if err != nil {
				return err
			}
			t.Query = append(t.Query, decoded)
		}
	}
	for _, s := range append(append([]string{t.Host}, t.Path...), t.Query...) {
		if len(s) > 255 {
			return fmt.Errorf("%.20q... is %d bytes, at most 255 fit an option", s, len(s))
		}
	}
	if len(t.Path)+len(t.Query) > 32 {
		return fmt.Errorf("%d path segments and query arguments, at most 32", len(t.Path)+len(t.Query))
	}
	return nil
}

// Resolve looks the host up, IPv4 first.
func (t Target) Resolve() (netip.AddrPort, error) {
	udp, err := net.ResolveUDPAddr("udp", net.JoinHostPort(t.Host, strconv.Itoa(int(t.Port))))
	if err != nil {
		return netip.AddrPort{}, err
	}
	return netip.AddrPortFrom(udp.AddrPort().Addr().Unmap(), udp.AddrPort().Port()), nil
}

// Authority is "host:port".
func (t Target) Authority() string { return net.JoinHostPort(t.Host, strconv.Itoa(int(t.Port))) }

// list returns Uri-Host (for a name only), Uri-Path and Uri-Query.
func (t Target) list() []Option {
	list := make([]Option, 0, 2+len(t.Path)+len(t.Query))
	if _, err := netip.ParseAddr(t.Host); err != nil {
		list = append(list, Option{message.URIHost, []byte(strings.ToLower(t.Host))})
	}
	for _, segment := range t.Path {
		list = append(list, Option{message.URIPath, []byte(segment)})
	}
	for _, argument := range t.Query {
		list = append(list, Option{message.URIQuery, []byte(argument)})
	}
	return list
}
