package discovery

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// DefaultPort is the port of STUNner's config discovery service.
const DefaultPort = 13478

// Limits of the text that names a configuration or a service.
const (
	maxOrigin = 512
	maxName   = 253 // of a name in Kubernetes
)

// Origin is the address of a config discovery service. The zero value is none.
type Origin struct {
	host   string // HOST or HOST:PORT
	secure bool
}

// ParseOrigin reads the address of a config discovery service as STUNner writes it: HOST:PORT, or a URL with http, https, ws or wss. A
// path is ignored, as STUNner does. No host, as in :13478, means this machine.
func ParseOrigin(text string) (Origin, error) {
	bad := func(reason string) (Origin, error) {
		return Origin{}, fmt.Errorf("%q is no config discovery service: %s; write HOST:PORT or http://HOST:PORT", shortened(text), reason)
	}
	if len(text) > maxOrigin {
		return bad("it is too long")
	}
	full := text
	if !strings.Contains(text, "://") {
		full = "http://" + text
	}
	u, err := url.Parse(full)
	var inner *url.Error
	switch {
	case errors.As(err, &inner):
		return bad(inner.Err.Error())
	case err != nil:
		return bad(err.Error())
	case u.User != nil:
		return Origin{}, errors.New("a config discovery service takes no user and no password; write HOST:PORT or http://HOST:PORT")
	case u.Host == "":
		return bad("it has no host")
	}
	o := Origin{host: u.Host}
	if strings.HasPrefix(o.host, ":") {
		o.host = "localhost" + o.host
	}
	switch strings.ToLower(u.Scheme) {
	case "http", "ws":
	case "https", "wss":
		o.secure = true
	default:
		return bad("the scheme is " + u.Scheme)
	}
	return o, nil
}

// shortened is text for an error.
func shortened(text string) string {
	const limit = 80
	if len(text) > limit {
		return text[:limit] + "…"
	}
	return text
}

// IsZero reports whether this is no address.
func (o Origin) IsZero() bool { return o.host == "" }

// String is the URL of the service.
func (o Origin) String() string { return o.url("http", "", url.Values{}) }

// url is a URL of the service; scheme is the one without encryption.
func (o Origin) url(scheme, path string, query url.Values) string {
	if o.secure {
		scheme += "s"
	}
	text := scheme + "://" + o.host + path
	if len(query) > 0 {
		text += "?" + query.Encode()
	}
	return text
}

// ID names a configuration: the namespace and the name of its Gateway. Without a name it stands for all of a namespace, and its zero
// value for all there are.
type ID struct{ Namespace, Name string }

// ParseID reads NAMESPACE/NAME.
func ParseID(text string) (ID, error) {
	namespace, name, ok := strings.Cut(text, "/")
	id := ID{namespace, name}
	if !ok || name == "" || !id.valid() {
		return ID{}, fmt.Errorf("%q names no configuration; write NAMESPACE/NAME, such as default/my-gateway", shortened(text))
	}
	return id, nil
}

// String is NAMESPACE/NAME.
func (id ID) String() string { return id.Namespace + "/" + id.Name }

// valid reports whether a server may be asked for it.
func (id ID) valid() bool {
	if id.Namespace == "" {
		return id.Name == ""
	}
	return validName(id.Namespace) && (id.Name == "" || validName(id.Name))
}

// validName reports whether a name can be one of Kubernetes, or of a host.
func validName(name string) bool {
	if name == "" || len(name) > maxName || name == "." || name == ".." {
		return false
	}
	return strings.IndexFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '.' && r != '_'
	}) < 0
}

// Path is where a service has the configuration of that name.
func Path(id ID) string { return id.path() }

// path is where a service has the configuration.
func (id ID) path() string {
	path := apiPath
	for _, part := range []string{id.Namespace, id.Name} {
		if part != "" {
			path += "/" + part
		}
	}
	return path
}

// apiPath is where a service has all configurations.
const apiPath = "/api/v1/configs"
