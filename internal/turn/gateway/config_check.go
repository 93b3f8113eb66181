package gateway

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/weir-lb/weir/internal/turn/allocation"
	"github.com/weir-lb/weir/internal/turn/routes"
)

// Validate returns the first invalid value as "PATH: what; remedy". It opens no file and no socket. A configuration
// without listeners is valid: the gateway is then alive and not ready.
func (c *Config) Validate() error {
	if err := checkName(c.Name, true); err != nil {
		return fmt.Errorf("name: %w", err)
	}
	if n := len(c.Realm); n > allocation.MaxRealm {
		return fmt.Errorf("realm: %d bytes are more than %d, so that over UDP the answer to a client's first request would be over three times the request; write a shorter one",
			n, allocation.MaxRealm)
	}
	if err := checkText(c.Realm, allocation.MaxRealm); err != nil {
		return fmt.Errorf("realm: %w", err)
	}
	if err := c.Auth.validate(); err != nil {
		return err
	}
	clusters, err := c.validateClusters()
	if err != nil {
		return err
	}
	if err := c.validateListeners(clusters); err != nil {
		return err
	}
	return c.validateNumbers()
}

func (a *AuthConfig) validate() error {
	switch a.Mode {
	case AuthStatic, "":
		if len(a.Secrets) > 0 {
			return errors.New("auth.secrets: secrets are of mode ephemeral; set auth.mode: ephemeral, or remove them")
		}
		if len(a.Users) == 0 {
			return errors.New("auth.users: no one may allocate; name users, or set auth.mode to ephemeral (with secrets) or none (STUN only)")
		}
	case AuthEphemeral:
		if len(a.Users) > 0 {
			return errors.New("auth.users: users are of mode static; set auth.mode: static, or remove them")
		}
		if len(a.Secrets) == 0 {
			return errors.New("auth.secrets: mode ephemeral without a secret; add one, such as secrets: [LONG-RANDOM-TEXT]")
		}
	case AuthNone:
		if len(a.Users)+len(a.Secrets) > 0 {
			return errors.New("auth.mode: none takes neither users nor secrets (it serves STUN only); remove them, or set static or ephemeral")
		}
	default:
		return fmt.Errorf("auth.mode: no mode %q; write static, ephemeral or none", a.Mode)
	}
	if len(a.Users) > maxUsers {
		return fmt.Errorf("auth.users: %d users are more than %d; use mode ephemeral", len(a.Users), maxUsers)
	}
	if len(a.Secrets) > maxSecrets {
		return fmt.Errorf("auth.secrets: %d secrets are more than %d; remove those that no client uses any more", len(a.Secrets), maxSecrets)
	}
	seen := map[string]int{}
	for i := range a.Users {
		user := &a.Users[i]
		if err := checkText(user.Name, maxUsername); err != nil || user.Name == "" {
			return fmt.Errorf("auth.users[%d].name: %w", i, cmpErr(err, errors.New("empty; write the user's name")))
		}
		if err := checkText(user.Password, maxUsername); err != nil || user.Password == "" {
			return fmt.Errorf("auth.users[%d].password: %w", i, cmpErr(err, errors.New("empty; write a password")))
		}
		if first, ok := seen[user.Name]; ok {
			return fmt.Errorf("auth.users[%d].name: %q is the name of auth.users[%d] already; each user needs its own", i, user.Name, first)
		}
		seen[user.Name] = i
	}
	for i, secret := range a.Secrets {
		if secret == "" {
			return fmt.Errorf("auth.secrets[%d]: empty; write a long random text, or remove it", i)
		}
	}
	return nil
}

func (c *Config) validateClusters() (names map[string]bool, err error) {
	if len(c.Clusters) > maxClusters {
		return nil, fmt.Errorf("clusters: %d clusters are more than %d; merge some", len(c.Clusters), maxClusters)
	}
	names = map[string]bool{}
	endpoints := 0
	for i := range c.Clusters {
		cluster := &c.Clusters[i]
		at := fmt.Sprintf("clusters[%d].", i)
		if err := checkName(cluster.Name, false); err != nil {
			return nil, fmt.Errorf("%sname: %w", at, err)
		}
		if names[cluster.Name] {
			return nil, fmt.Errorf("%sname: a second cluster %q; each needs its own name", at, cluster.Name)
		}
		names[cluster.Name] = true
		if p := cluster.Protocol; p != "" && p != UDP && p != TCP {
			return nil, fmt.Errorf("%sprotocol: no protocol %q of peers; write udp or tcp", at, p)
		}
		for j, text := range cluster.Endpoints {
			if _, err := routes.ParseEndpoint(text); err != nil {
				return nil, fmt.Errorf("%sendpoints[%d]: %w", at, j, err)
			}
		}
		if endpoints += len(cluster.Endpoints); endpoints > routes.MaxEndpoints {
			return nil, fmt.Errorf("%sendpoints: more than %d endpoints in all; write prefixes", at, routes.MaxEndpoints)
		}
		if r := cluster.Refresh; r != 0 && (r < time.Second || r > 24*time.Hour) {
			return nil, fmt.Errorf("%srefresh: %s is not between 1s and 24h", at, r)
		}
	}
	return names, nil
}

func (c *Config) validateNumbers() error {
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
		if n.value < 0 || n.value > n.max {
			return fmt.Errorf("%s: %d is not between 0 (default) and %d", n.key, n.value, n.max)
		}
	}
	if q := c.Quotas; q.Burst != 0 && q.Bandwidth == 0 {
		return errors.New("quotas.burst: a burst without a bandwidth bounds nothing; set quotas.bandwidth, or remove it")
	} else if q.Burst != 0 && q.Burst < 2048 {
		return fmt.Errorf("quotas.burst: %d bytes hold no full packet; write 2kB or more", q.Burst)
	}
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
		if d.value != 0 && (d.value < d.min || d.value > d.max) {
			return fmt.Errorf("%s: %s is not between %s and %s", d.key, d.value, d.min, d.max)
		}
	}
	if t := c.WithDefaults().Lifetimes; t.Default > t.Max {
		return fmt.Errorf("lifetimes.default: %s is longer than lifetimes.max, %s; lower it", t.Default, t.Max)
	}
	if a := c.Drain.Alternate; a != (netip.AddrPort{}) && (!a.IsValid() || a.Port() == 0 || a.Addr().IsUnspecified()) {
		return fmt.Errorf("drain.alternate: %s is no server to send clients to; write its address and port", a)
	}
	return c.Offload.validate()
}

func (o *OffloadConfig) validate() error {
	switch o.Mode {
	case "", OffloadNone, OffloadAuto, OffloadXDP, OffloadTCX:
	default:
		return fmt.Errorf("offload.mode: no mode %q; write auto, xdp, tcx or none", o.Mode)
	}
	for i, name := range o.Interfaces {
		if name == "" || len(name) > 15 || strings.ContainsAny(name, "/ \t") {
			return fmt.Errorf("offload.interfaces[%d]: %q is no name of an interface; write one such as eth0", i, name)
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
