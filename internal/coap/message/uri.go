package message

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// URI is a coap or coaps URI taken apart (RFC 7252 section 6.4). Path and Query are percent-decoded.
type URI struct {
	Secure bool   // coaps
	Host   string // name or address without brackets
	Port   uint16 // 5683 or 5684 when not written
	Path   []string
	Query  []string
}

// Default ports of the two schemes.
const (
	DefaultPort       = 5683
	DefaultSecurePort = 5684
)

// ParseURI reads a coap:// or coaps:// URI. The error says what to change.
func ParseURI(s string) (URI, error) {
	parsed, err := url.Parse(s)
	if err != nil {
		return URI{}, fmt.Errorf("URI %q: %w", s, err)
	}
	u := URI{Host: parsed.Hostname(), Port: DefaultPort}
	switch strings.ToLower(parsed.Scheme) {
	case "coap":
	case "coaps":
		u.Secure, u.Port = true, DefaultSecurePort
	default:
		return URI{}, fmt.Errorf("URI %q: scheme must be coap or coaps, for example coap://localhost:5683/context", s)
	}
	switch {
	case u.Host == "":
		return URI{}, fmt.Errorf("URI %q: names no host", s)
	case parsed.Fragment != "" || strings.Contains(s, "#"):
		return URI{}, fmt.Errorf("URI %q: a CoAP URI has no fragment (#...)", s)
	case parsed.User != nil:
		return URI{}, fmt.Errorf("URI %q: a CoAP URI has no user part (...@)", s)
	}
	if port := parsed.Port(); port != "" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return URI{}, fmt.Errorf("URI %q: port must be 1 to 65535", s)
		}
		u.Port = uint16(n)
	}
	if u.Path, err = splitDecoded(strings.TrimPrefix(parsed.EscapedPath(), "/"), "/"); err != nil {
		return URI{}, fmt.Errorf("URI %q: path: %w", s, err)
	}
	if u.Query, err = splitDecoded(parsed.RawQuery, "&"); err != nil {
		return URI{}, fmt.Errorf("URI %q: query: %w", s, err)
	}
	return u, nil
}

func splitDecoded(s, separator string) ([]string, error) {
	if s == "" {
		return nil, nil
	}
	parts := strings.Split(s, separator)
	for i, part := range parts {
		decoded, err := url.PathUnescape(part) // a plus sign is a plus sign in CoAP
		if err != nil {
			return nil, err
		}
		if len(decoded) > 255 {
			return nil, fmt.Errorf("part %d has %d bytes, an option holds 255", i+1, len(decoded))
		}
		parts[i] = decoded
	}
	return parts, nil
}

// HostPort returns the address to dial.
func (u URI) HostPort() string { return net.JoinHostPort(u.Host, strconv.Itoa(int(u.Port))) }

// String returns the URI in its normal form: no default port, percent-encoded.
func (u URI) String() string {
	var b strings.Builder
	b.WriteString("coap")
	port := uint16(DefaultPort)
	if u.Secure {
		b.WriteByte('s')
		port = DefaultSecurePort
	}
	b.WriteString("://")
	switch {
	case u.Port != port:
		b.WriteString(u.HostPort())
	case strings.Contains(u.Host, ":"):
		b.WriteString("[" + u.Host + "]")
	default:
		b.WriteString(u.Host)
	}
	for _, segment := range u.Path {
		b.WriteByte('/')
		escape(&b, segment, "!$&'()*+,;=:@")
	}
	for i, part := range u.Query {
		b.WriteByte("?&"[min(i, 1)])
		escape(&b, part, "!$'()*+,;=:@/?")
	}
	return b.String()
}

// escape writes s with every byte percent-encoded that is neither unreserved (RFC 3986) nor in keep.
func escape(b *strings.Builder, s, keep string) {
	for i := range len(s) {
		c := s[i]
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~"+keep, c) >= 0 {
			b.WriteByte(c)
			continue
		}
		fmt.Fprintf(b, "%%%02X", c)
	}
}

// AppendHost adds Uri-Host, unless the host is an address, which the datagram's destination already says. Uri-Port is never needed,
// because the client sends to it.
func (u URI) AppendHost(b *Builder) {
	if _, err := netip.ParseAddr(u.Host); err != nil {
		b.Text(URIHost, strings.ToLower(u.Host))
	}
}

// AppendPath adds the Uri-Path options. A URI that ends in a slash has an empty last segment, "/" alone has none.
func (u URI) AppendPath(b *Builder) {
	for _, segment := range u.Path {
		b.Text(URIPath, segment)
	}
}

// AppendQuery adds the Uri-Query options; Content-Format and Max-Age sort before, Accept after them.
func (u URI) AppendQuery(b *Builder) {
	for _, part := range u.Query {
		b.Text(URIQuery, part)
	}
}

// FromRequest puts the URI of a request together from its options, for the address it was sent to (RFC 7252 section 6.5).
func FromRequest(m *Message, to netip.AddrPort, secure bool) URI {
	u := URI{Secure: secure, Host: to.Addr().String(), Port: to.Port()}
	for options := m.Options(); options.Next(); {
		value := string(options.Value())
		switch options.ID() {
		case URIHost:
			u.Host = value
		case URIPort:
			if n, ok := Uint(options.Value()); ok && n > 0 && n <= 0xffff {
				u.Port = uint16(n)
			}
		case URIPath:
			u.Path = append(u.Path, value)
		case URIQuery:
			u.Query = append(u.Query, value)
		}
	}
	return u
}
