package gateway

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/weir-lb/weir/internal/keyerror"
	"github.com/weir-lb/weir/internal/turn/allocation"
	"github.com/weir-lb/weir/internal/turn/routes"
)

// Validate returns what is invalid: a [keyerror.Error], or [keyerror.Errors]. It opens no file and no socket. A configuration
// without listeners is valid: the gateway is then alive and not ready.
func (c *Config) Validate() error {
	var wrong keyerror.List
	wrong.Add(keyerror.At("name", checkName(c.Name, true)))
	if n := len(c.Realm); n > allocation.MaxRealm {
		wrong.If(true, "realm", "%d bytes are more than %d, so that over UDP the answer to a client's first request would be over three times the request; write a shorter one",
			n, allocation.MaxRealm)
	} else {
		wrong.Add(keyerror.At("realm", checkText(c.Realm, allocation.MaxRealm)))
	}
	wrong.Add(c.Auth.validate())
	clusters, err := c.validateClusters()
	wrong.Add(err)
	wrong.Add(c.validateListeners(clusters))
	wrong.Add(c.validateNumbers())
	return wrong.Err()
}

func (a *AuthConfig) validate() error {
	switch a.Mode {
	case AuthStatic, "":
		if len(a.Secrets) > 0 {
			return keyerror.Errorf("auth.secrets", "secrets are of mode ephemeral; set auth.mode: ephemeral, or remove them")
		}
		if len(a.Users) == 0 {
			return keyerror.Errorf("auth.users", "no one may allocate; name users, or set auth.mode to ephemeral (with secrets) or none (STUN only)")
		}
	case AuthEphemeral:
		if len(a.Users) > 0 {
			return keyerror.Errorf("auth.users", "users are of mode static; set auth.mode: static, or remove them")
		}
		if len(a.Secrets) == 0 {
			return keyerror.Errorf("auth.secrets", "mode ephemeral without a secret; add one, such as secrets: [LONG-RANDOM-TEXT]")
		}
	case AuthNone:
		if len(a.Users)+len(a.Secrets) > 0 {
			return keyerror.Errorf("auth.mode", "none takes neither users nor secrets (it serves STUN only); remove them, or set static or ephemeral")
		}
	default:
		return keyerror.Errorf("auth.mode", "no mode %q; write static, ephemeral or none", a.Mode)
	}
	if len(a.Users) > maxUsers {
		return keyerror.Errorf("auth.users", "%d users are more than %d; use mode ephemeral", len(a.Users), maxUsers)
	}
	if len(a.Secrets) > maxSecrets {
		return keyerror.Errorf("auth.secrets", "%d secrets are more than %d; remove those that no client uses any more", len(a.Secrets), maxSecrets)
	}
	var wrong keyerror.List
	seen := map[string]int{}
	for i := range a.Users {
		user := &a.Users[i]
		at := fmt.Sprintf("auth.users[%d].", i)
		if err := checkText(user.Name, maxUsername); err != nil || user.Name == "" {
			wrong.Add(keyerror.At(at+"name", cmpErr(err, errors.New("empty; write the user's name"))))
		} else if first, ok := seen[user.Name]; ok {
			wrong.If(true, at+"name", "%q is the name of auth.users[%d] already; each user needs its own", user.Name, first)
		} else {
			seen[user.Name] = i
		}
		if err := checkText(user.Password, maxUsername); err != nil || user.Password == "" {
			wrong.Add(keyerror.At(at+"password", cmpErr(err, errors.New("empty; write a password"))))
		}
	}
	for i, secret := range a.Secrets {
		wrong.If(secret == "", fmt.Sprintf("auth.secrets[%d]", i), "empty; write a long random text, or remove it")
	}
	return wrong.Err()
}

func (c *Config) validateClusters() (names map[string]bool, err error) {
	if len(c.Clusters) > maxClusters {
		return nil, keyerror.Errorf("clusters", "%d clusters are more than %d; merge some", len(c.Clusters), maxClusters)
	}
	names = map[string]bool{}
	var wrong keyerror.List
	endpoints := 0
	for i := range c.Clusters {
		cluster := &c.Clusters[i]
		at := fmt.Sprintf("clusters[%d].", i)
		wrong.Add(keyerror.At(at+"name", checkName(cluster.Name, false)))
		wrong.If(names[cluster.Name], at+"name", "a second cluster %q; each needs its own name", cluster.Name)
		names[cluster.Name] = true
		p, r := cluster.Protocol, cluster.Refresh
		wrong.If(p != "" && p != UDP && p != TCP, at+"protocol", "no protocol %q of peers; write udp or tcp", p)
		if endpoints += len(cluster.Endpoints); endpoints > routes.MaxEndpoints {
			return names, keyerror.Errorf(at+"endpoints", "more than %d endpoints in all; write prefixes", routes.MaxEndpoints)
		}
		for j, text := range cluster.Endpoints {
			_, err := routes.ParseEndpoint(text)
			wrong.Add(keyerror.At(fmt.Sprintf("%sendpoints[%d]", at, j), err))
		}
		wrong.If(r != 0 && (r < time.Second || r > 24*time.Hour), at+"refresh", "%s is not between 1s and 24h", r)
	}
	return names, wrong.Err()
}

func (c *Config) validateNumbers() error {
	var wrong keyerror.List
	for _, n := range []struct {
		key        string
		value, max int
	}{
		{"quotas.allocations", c.Quotas.Allocations, 1 << 24},
		{"quotas.allocations_per_user", c.Quotas.AllocationsPerUser, 1 << 24},
		{"quotas.permissions", c.Quotas.Permissions, 4096},
		{"quotas.channels", c.Quotas.Channels, 4096},
		{"quotas.connections", c.Quotas.Connections, 4096},
		{"limits.unauthenticated", c.Limits.Unauthenticated, 1 << 30},
		{"limits.unauthenticated_total", c.Limits.UnauthenticatedTotal, 1 << 30},
		{"limits.bindings", c.Limits.Bindings, 1 << 30},
		{"limits.proven", c.Limits.Proven, 1 << 30},
		{"limits.connections", c.Limits.Connections, 1 << 24},
		{"limits.handshakes", c.Limits.Handshakes, 1 << 20},
	} {
		wrong.If(n.value < 0 || n.value > n.max, n.key, "%d is not between 0 (default) and %d", n.value, n.max)
	}
	q := c.Quotas
	wrong.If(q.Burst != 0 && q.Bandwidth == 0, "quotas.burst", "a burst without a bandwidth bounds nothing; set quotas.bandwidth, or remove it")
	wrong.If(q.Burst != 0 && q.Bandwidth != 0 && q.Burst < 2048, "quotas.burst", "%d bytes hold no full packet; write 2kB or more", q.Burst)
	for _, d := range []struct {
		key      string
		value    time.Duration
		min, max time.Duration
	}{
		{"lifetimes.default", c.Lifetimes.Default, time.Minute, 24 * time.Hour},
		{"lifetimes.max", c.Lifetimes.Max, time.Minute, 24 * time.Hour},
		{"lifetimes.nonce", c.Lifetimes.Nonce, time.Minute, 24 * time.Hour},
		{"drain.timeout", c.Drain.Timeout, time.Second, 7 * 24 * time.Hour},
	} {
		wrong.If(d.value != 0 && (d.value < d.min || d.value > d.max), d.key, "%s is not between %s and %s", d.value, d.min, d.max)
	}
	if t := c.WithDefaults().Lifetimes; t.Default > t.Max && wrong.Err() == nil {
		wrong.If(true, "lifetimes.default", "%s is longer than lifetimes.max, %s; lower it", t.Default, t.Max)
	}
	if a := c.Drain.Alternate; a != (netip.AddrPort{}) && (!a.IsValid() || a.Port() == 0 || a.Addr().IsUnspecified()) {
		wrong.If(true, "drain.alternate", "%s is no server to send clients to; write its address and port", a)
	}
	wrong.Add(c.Offload.validate())
	return wrong.Err()
}

func (o *OffloadConfig) validate() error {
	switch o.Mode {
	case "", OffloadNone, OffloadAuto, OffloadXDP, OffloadTCX:
	default:
		return keyerror.Errorf("offload.mode", "no mode %q; write auto, xdp, tcx or none", o.Mode)
	}
	for i, name := range o.Interfaces {
		if name == "" || len(name) > 15 || strings.ContainsAny(name, "/ \t") {
			return keyerror.Errorf(fmt.Sprintf("offload.interfaces[%d]", i), "%q is no name of an interface; write one such as eth0", name)
		}
	}
	return nil
}

// checkName accepts printable names without spaces, because names become labels of metrics and parts of log lines.
func checkName(name string, mayBeEmpty bool) error {
	switch {
	case name == "" && !mayBeEmpty:
		return errors.New("empty; write a name, such as udp or media")
	case len(name) > maxName:
		return fmt.Errorf("%d bytes are more than %d; write a shorter name", len(name), maxName)
	case strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune("\"\\{}", r) }):
		return fmt.Errorf("%q holds more than plain letters, digits and signs; write a name such as udp-1", name)
	}
	return nil
}

// checkText accepts roughly what RFC 8265 allows in names and passwords: text without control characters.
func checkText(text string, maxBytes int) error {
	if len(text) > maxBytes {
		return fmt.Errorf("%d bytes are more than %d; write a shorter one", len(text), maxBytes)
	}
	if !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
		return errors.New("it holds control characters or bytes that are no UTF-8; write plain text")
	}
	return nil
}

// cmpErr is err, or other where err is nil.
func cmpErr(err, other error) error {
	if err != nil {
		return err
	}
	return other
}
