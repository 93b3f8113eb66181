package authservice

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Limits of what a client asks for.
const (
	defaultTTL  = 24 * time.Hour
	maxTTL      = 365 * 24 * time.Hour
	maxUsername = 256
	maxQuery    = 4096
)

// question is what a client wants.
type question struct {
	username                     string
	ttl                          time.Duration
	key                          string
	namespace, gateway, listener string // empty: any
	host                         string // in place of the listeners' own; empty: theirs
	policy                       string
}

// parseQuestion reads the parameters of a request. Unknown ones are ignored. An error names the parameter, not its value.
func parseQuestion(query string) (q question, err error) {
	if len(query) > maxQuery {
		return q, fmt.Errorf("the parameters are longer than %d bytes", maxQuery)
	}
	form, err := url.ParseQuery(query)
	if err != nil {
		return q, fmt.Errorf("the parameters cannot be read; percent-encode them")
	}
	if form.Get("service") != "turn" {
		return q, fmt.Errorf(`"service" must be "turn"`)
	}
	q = question{
		username: form.Get("username"), ttl: defaultTTL, key: form.Get("key"), namespace: form.Get("namespace"), gateway: form.Get("gateway"),
		listener: form.Get("listener"), host: strings.Trim(form.Get("public-addr"), "[]"), policy: "all",
	}
	if len(q.username) > maxUsername || strings.ContainsFunc(q.username, func(r rune) bool { return unicode.IsControl(r) || r == unicode.ReplacementChar }) {
		return q, fmt.Errorf("username: write at most %d bytes of text", maxUsername)
	}
	if text := form.Get("ttl"); text != "" {
		seconds, err := strconv.ParseInt(text, 10, 64)
		if err != nil || seconds < 1 || seconds > int64(maxTTL/time.Second) {
			return q, fmt.Errorf("ttl: write seconds from 1 to %d", int64(maxTTL/time.Second))
		}
		q.ttl = time.Duration(seconds) * time.Second
	}
	switch policy := form.Get("iceTransportPolicy"); policy {
	case "":
	case "all", "relay", "public":
		q.policy = policy
	default:
		return q, fmt.Errorf("iceTransportPolicy: write all, relay or public")
	}
	switch {
	case q.gateway != "" && q.namespace == "":
		return q, fmt.Errorf("gateway: needs a namespace, too")
	case q.listener != "" && q.gateway == "":
		return q, fmt.Errorf("listener: needs a namespace and a gateway, too")
	case q.host != "" && public(q.host) == "":
		return q, fmt.Errorf("public-addr: write an address or a host name")
	}
	return q, nil
}

// fits reports whether a listener is one that the client wants.
func (q *question) fits(l *listener) bool {
	return (q.namespace == "" || q.namespace == l.namespace) && (q.gateway == "" || q.gateway == l.gateway) && (q.listener == "" || q.listener == l.name)
}
