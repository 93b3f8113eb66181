package stunnerd

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/weir-lb/weir/internal/keyerror"
	"github.com/weir-lb/weir/internal/turn/gateway"
	"github.com/weir-lb/weir/internal/turn/routes"
)

// STUNner's defaults that differ from the gateway's.
const (
	defaultName        = "default-stunnerd"
	defaultRealm       = "stunner.l7mp.io"
	defaultPort        = "3478" // of every protocol
	defaultHealth      = "http://:8086"
	defaultHealthPort  = "8086"
	defaultMetricsPort = "8080"
)

// Result is what a stunnerd configuration requests.
type Result struct {
	Gateway gateway.Config
	Health  Endpoint // where /live, /ready and /status are served
	Metrics Endpoint
	Log     LogLevels
	Notes   []error // for the log: what has no effect here, or another effect than in STUNner; each is a [keyerror.Error]
}

// Endpoint is an HTTP address. The zero value means: none.
type Endpoint struct {
	Address string // HOST:PORT, or :PORT for every address
	Path    string // beginning with a slash; / if none was given
}

// converter collects the results of Convert.
type converter struct {
	getenv func(string) string
	result Result
}

func (c *converter) note(key, format string, args ...any) {
	c.result.Notes = append(c.result.Notes, keyerror.Errorf(key, format, args...))
}

// expand replaces $VAR and ${VAR}.
func (c *converter) expand(t Text) string { return strings.TrimSpace(os.Expand(string(t), c.getenv)) }

// Convert returns the gateway's configuration for the file; getenv has the role of os.Getenv. An error is a
// [keyerror.Error] with the key of the file that is wrong. The gateway's configuration is validated.
func (f *Config) Convert(getenv func(string) string) (*Result, error) {
	c := &converter{getenv: withPort(getenv)}
	c.result.Log.All = slog.LevelInfo
	switch version := c.expand(f.Version); version {
	case "v1", "v1alpha1":
	case "":
		return nil, keyerror.Errorf("version", "missing; write version: v1")
	default:
		return nil, keyerror.Errorf("version", "STUNner's API %q is not read here; write v1 (or v1alpha1), or the configuration of weir", version)
	}
	var wrong keyerror.List
	for _, step := range []func(*Config) error{c.admin, c.auth, c.clusters, c.listeners, c.logLevel} {
		wrong.Add(step(f))
	}
	if err := wrong.Err(); err != nil {
		return nil, err
	}
	if err := c.result.Gateway.Validate(); err != nil {
		return nil, ofFile(err)
	}
	return &c.result, nil
}

// withPort sets STUNNER_PORT like stunnerd if it is missing or not a number: to STUNNER_PUBLIC_PORT, else to the
// default.
func withPort(getenv func(string) string) func(string) string {
	return func(key string) string {
		value := getenv(key)
		if key != "STUNNER_PORT" || value != "" && strings.Trim(value, "0123456789") == "" {
			return value
		}
		if public, err := strconv.Atoi(getenv("STUNNER_PUBLIC_PORT")); err == nil {
			return strconv.Itoa(public)
		}
		return defaultPort
	}
}

// ofFile gives an error of gateway.Config the key of the file that the value came from.
func ofFile(err error) error {
	var several keyerror.Errors
	if errors.As(err, &several) {
		var list keyerror.List
		for _, one := range several {
			list.Add(ofFile(one))
		}
		return list.Err()
	}
	var wrong *keyerror.Error
	if !errors.As(err, &wrong) {
		return err
	}
	key := wrong.Key
	for _, of := range [][2]string{
		{"auth.users[0].name", "auth.credentials.username"},
		{"auth.users[0].password", "auth.credentials.password"},
		{"auth.secrets[0]", "auth.credentials.secret"},
		{"auth.secrets", "auth.credentials"},
		{"auth.users", "auth.credentials"},
		{"auth.mode", "auth.type"},
		{"quotas.allocations_per_user", "admin.user_quota"},
		{"offload.mode", "admin.offload_engine"},
		{"offload.interfaces", "admin.offload_interfaces"},
		{"realm", "auth.realm"},
		{"name", "admin.name"},
	} {
		if below, ok := strings.CutPrefix(key, of[0]); ok {
			key = of[1] + below
			break
		}
	}
	for _, of := range [][2]string{{".relay_ports", ".min_relay_port"}, {".public", ".public_address"}, {".certificate", ".cert"}} {
		if above, ok := strings.CutSuffix(key, of[0]); ok {
			key = above + of[1]
		}
	}
	return keyerror.At(key, wrong.Err)
}

func (c *converter) admin(f *Config) error {
	g, a := &c.result.Gateway, &f.Admin
	g.Name = cmp.Or(c.expand(a.Name), defaultName)
	health := Text(defaultHealth)
	if a.HealthcheckEndpoint != nil {
		health = *a.HealthcheckEndpoint
	}
	var err error
	if c.result.Health, err = endpoint(c.expand(health), defaultHealthPort); err != nil {
		return keyerror.At("admin.healthcheck_endpoint", err)
	}
	if c.result.Metrics, err = endpoint(c.expand(a.MetricsEndpoint), defaultMetricsPort); err != nil {
		return keyerror.At("admin.metrics_endpoint", err)
	}
	if text := c.expand(a.UserQuota); text != "" {
		quota, err := strconv.Atoi(text)
		if err != nil {
			return keyerror.Errorf("admin.user_quota", "%q is no number of allocations; write one such as 10, or 0 for no quota", text)
		}
		g.Quotas.AllocationsPerUser = max(quota, 0)
	}
	engine := strings.ToLower(c.expand(a.OffloadEngine))
	switch engine {
	case "", "none":
		g.Offload.Mode = gateway.OffloadNone
	case "xdp", "auto":
		g.Offload.Mode = gateway.OffloadMode(engine)
	case "tc", "tcx":
		g.Offload.Mode = gateway.OffloadTCX
	default:
		return keyerror.Errorf("admin.offload_engine", "no engine %q; write None, XDP, TC or Auto", a.OffloadEngine)
	}
	for _, name := range a.OffloadInterfaces {
		g.Offload.Interfaces = append(g.Offload.Interfaces, c.expand(name))
	}
	if a.LicenseConfig != nil {
		c.note("admin.license_config", "no feature here needs a license; it is not looked at")
	}
	return nil
}

// endpoint reads http://HOST:PORT/PATH; empty is none.
func endpoint(text, port string) (Endpoint, error) {
	if text == "" {
		return Endpoint{}, nil
	}
	bad := fmt.Errorf("%q is no HTTP address; write for example http://:%s, or \"\" for none", text, port)
	rest, ok := strings.CutPrefix(text, "http://")
	if !ok {
		return Endpoint{}, bad
	}
	address, path, _ := strings.Cut(rest, "/")
	host := address
	if h, p, err := net.SplitHostPort(address); err == nil {
		host = h
		if p != "" {
			port = p
		}
	}
	host = strings.Trim(host, "[]")
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || strings.ContainsAny(address, "@?# ") || strings.ContainsAny(path, "?# {}") {
		return Endpoint{}, bad
	}
	return Endpoint{Address: net.JoinHostPort(host, port), Path: "/" + path}, nil
}

func (c *converter) auth(f *Config) error {
	g, a := &c.result.Gateway, &f.Auth
	g.Realm = cmp.Or(c.expand(a.Realm), defaultRealm)
	credential := func(key string) (string, error) {
		text, ok := a.Credentials[key]
		if !ok || text == "" {
			return "", keyerror.Errorf("auth.credentials", "there is no %s, which type %s needs; write it", key, cmp.Or(string(a.Type), "static"))
		}
		return string(text), nil // a $ in a password is a $
	}
	switch kind := strings.ToLower(c.expand(a.Type)); kind {
	case "", "static", "plaintext":
		user, err := credential("username")
		if err != nil {
			return err
		}
		password, err := credential("password")
		if err != nil {
			return err
		}
		g.Auth = gateway.AuthConfig{Mode: gateway.AuthStatic, Users: []gateway.UserConfig{{Name: user, Password: password}}}
	case "ephemeral", "longterm", "timewindowed": // the last is only in STUNner's CRD
		secret, err := credential("secret")
		if err != nil {
			return err
		}
		g.Auth = gateway.AuthConfig{Mode: gateway.AuthEphemeral, Secrets: []string{secret}}
	case "none":
		g.Auth.Mode = gateway.AuthNone
	default:
		return keyerror.Errorf("auth.type", "no type %q; write static, ephemeral or none", kind)
	}
	return nil
}

func (c *converter) clusters(f *Config) error {
	for i := range f.Clusters {
		from := &f.Clusters[i]
		at := fmt.Sprintf("clusters[%d].", i)
		to := gateway.ClusterConfig{Name: c.expand(from.Name), Protocol: gateway.Protocol(strings.ToLower(c.expand(from.Protocol)))}
		byName := false
		switch kind := strings.ToUpper(c.expand(from.Type)); kind {
		case "", "STATIC":
		case "STRICT_DNS":
			byName = true
		default:
			return keyerror.Errorf(at+"type", "no type %q; write STATIC (addresses) or STRICT_DNS (names)", kind)
		}
		for j, text := range from.Endpoints {
			key := fmt.Sprintf("%sendpoints[%d]", at, j)
			endpoint, err := c.peers(key, c.expand(text), byName)
			if err != nil {
				return keyerror.At(key, err)
			}
			to.Endpoints = append(to.Endpoints, endpoint)
		}
		c.result.Gateway.Clusters = append(c.result.Gateway.Clusters, to)
	}
	return nil
}

// peers checks one endpoint. STUNner accepts a prefix with bits beyond its length and ignores them.
func (c *converter) peers(key, text string, byName bool) (string, error) {
	host, ports := text, ""
	if at := strings.Index(text, ":<"); at > 0 {
		host, ports = text[:at], text[at:]
	}
	if prefix, err := netip.ParsePrefix(host); err == nil && prefix != prefix.Masked() {
		c.note(key, "%s is read as %s", text, prefix.Masked())
		text = prefix.Masked().String() + ports
	}
	endpoint, err := routes.ParseEndpoint(text)
	if err == nil && endpoint.Name != "" && !byName {
		err = fmt.Errorf("%q is a name in a cluster of type STATIC; write addresses, or set type: STRICT_DNS", text)
	}
	return text, err
}
