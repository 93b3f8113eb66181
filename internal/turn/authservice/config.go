package authservice

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// config is what a gateway's configuration says about credentials.
type config struct {
	kind                   authKind
	user, password, secret string
	listeners              []listener
}

type authKind uint8

const (
	authNone authKind = iota
	authStatic
	authEphemeral
)

// listener is where clients reach a gateway.
type listener struct {
	namespace, gateway, name string
	scheme, transport        string // turn or turns, udp or tcp
	host                     string // empty: it has no public address
	port                     int
}

// wire is the part of STUNner's configuration that counts here; other keys are ignored.
type wire struct {
	Admin struct {
		Name string `json:"name"`
	} `json:"admin"`
	Auth struct {
		Type        string            `json:"type"`
		Credentials map[string]string `json:"credentials"`
	} `json:"auth"`
	Listeners []struct {
		Name          string `json:"name"`
		Protocol      string `json:"protocol"`
		PublicAddress string `json:"public_address"`
		PublicPort    int    `json:"public_port"`
		Address       string `json:"address"`
		Port          int    `json:"port"`
	} `json:"listeners"`
}

// parse reads a configuration. Its error has no value of it, which may be a secret.
func parse(text []byte) (name string, c config, err error) {
	var w wire
	if err := json.Unmarshal(text, &w); err != nil {
		return "", c, fmt.Errorf("it is no configuration of a gateway: %w", withoutValue(err))
	}
	if w.Admin.Name == "" {
		return "", c, errors.New("admin.name: the configuration has no name")
	}
	credentials := w.Auth.Credentials
	switch strings.ToLower(w.Auth.Type) {
	case "", "static", "plaintext":
		c.kind, c.user, c.password = authStatic, credentials["username"], credentials["password"]
		if c.user == "" || c.password == "" {
			return w.Admin.Name, c, errors.New("auth.credentials: a username and a password are missing")
		}
	case "ephemeral", "longterm", "timewindowed":
		if c.kind, c.secret = authEphemeral, credentials["secret"]; c.secret == "" {
			return w.Admin.Name, c, errors.New("auth.credentials: a secret is missing")
		}
	case "none":
	default:
		return w.Admin.Name, c, errors.New("auth.type: no static, ephemeral or none")
	}
	for _, l := range w.Listeners {
		parts := strings.Split(l.Name, "/")
		if len(parts) != 3 {
			continue // a legacy name; nothing says which gateway it belongs to
		}
		to := listener{namespace: parts[0], gateway: parts[1], name: parts[2], host: public(l.PublicAddress), port: l.PublicPort}
		if to.host == "" {
			to.host = public(l.Address)
		}
		if to.port == 0 {
			to.port = l.Port
		}
		if to.port == 0 {
			to.port = 3478
		}
		var ok bool
		if to.scheme, to.transport, ok = transportOf(l.Protocol); ok && to.port > 0 && to.port < 1<<16 {
			c.listeners = append(c.listeners, to)
		}
	}
	return w.Admin.Name, c, nil
}

// withoutValue is an error of package json without the text that it could not read.
func withoutValue(err error) error {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return fmt.Errorf("%s: wrong type", wrong.Field)
	}
	return errors.New("no JSON")
}

// public is an address or a host name that clients can reach; empty for a placeholder and for an unspecified address.
func public(text string) string {
	text = strings.Trim(strings.TrimSpace(text), "[]")
	if ip := net.ParseIP(text); ip != nil && ip.IsUnspecified() || !validHost(text) {
		return ""
	}
	return text
}

// validHost reports whether a text is an IP address or can be a host name.
func validHost(text string) bool {
	if net.ParseIP(text) != nil {
		return true
	}
	if text == "" || len(text) > 253 || strings.HasPrefix(text, "_") { // STUNner's placeholder begins so
		return false
	}
	return strings.IndexFunc(text, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '.' && r != '_'
	}) < 0
}

func transportOf(protocol string) (scheme, transport string, ok bool) {
	switch strings.TrimPrefix(strings.ToLower(protocol), "turn-") {
	case "", "udp":
		return "turn", "udp", true
	case "tcp":
		return "turn", "tcp", true
	case "tls":
		return "turns", "tcp", true
	case "dtls":
		return "turns", "udp", true
	}
	return "", "", false
}

// uri is where clients find a listener (RFC 7065); host, if not empty, replaces its own.
func (l *listener) uri(host string) string {
	if host == "" {
		host = l.host
	}
	if host == "" {
		return ""
	}
	return l.scheme + ":" + net.JoinHostPort(host, strconv.Itoa(l.port)) + "?transport=" + l.transport
}
