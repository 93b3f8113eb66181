package stunnerd

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/netip"
	"strings"

	"github.com/weir-lb/weir/internal/turn/gateway"
)

// dummy is the user and the password of the configuration with which stunnerd begins.
const (
	dummyUser     = "dummy-username"
	dummyPassword = "dummy-password"
)

// Bootstrap is the configuration of a gateway that has not received one yet: no listener, no user, and a health endpoint at an address
// such as http://:8086; empty: none.
func Bootstrap(name, health string) []byte {
	text, err := json.Marshal(map[string]any{
		"version": "v1", "admin": map[string]string{"name": name, "healthcheck_endpoint": health}, "auth": map[string]string{"type": "none"},
	})
	if err != nil {
		panic(err) // texts have a JSON form
	}
	return text
}

// Deleted is the configuration that a config discovery service sends when that of a gateway was deleted: STUNner's zero configuration.
func Deleted(name string) []byte {
	text, err := json.Marshal(map[string]any{
		"version": "v1", "admin": map[string]string{"name": name},
		"auth":      map[string]any{"type": "static", "realm": defaultRealm, "credentials": map[string]string{"username": dummyUser, "password": dummyPassword}},
		"listeners": []string{}, "clusters": []string{},
	})
	if err != nil {
		panic(err) // texts have a JSON form
	}
	return text
}

// ownAddress is the variable with the address of the Pod.
const ownAddress = "STUNNER_ADDR"

// Translated makes the listeners of a configuration whose address is none of this host's bind the address own, that of the Pod, and give
// clients the configured one, as behind a 1:1 NAT: a config discovery service writes the external address of the node there. It returns
// the names of these listeners. stunnerd, which binds every address, does not need this.
func Translated(c *gateway.Config, own netip.Addr, local func(netip.Addr) bool) (names []string) {
	for i := range c.Listeners {
		l := &c.Listeners[i]
		if !own.IsValid() || l.Address.IsUnspecified() || l.Address.Is4() != own.Is4() || l.Address == own || len(l.Relay) > 0 || local(l.Address) {
			continue
		}
		l.Relay, l.RelayPublic, l.Address = []netip.Addr{own}, []netip.Addr{l.Address}, own
		names = append(names, l.Name)
	}
	return names
}

// head is what says whether a configuration is Deleted, and whose it is.
type head struct {
	Admin struct {
		Name string `json:"name"`
	} `json:"admin"`
	Auth struct {
		Type        string            `json:"type"`
		Credentials map[string]string `json:"credentials"`
	} `json:"auth"`
	Listeners []json.RawMessage `json:"listeners"`
	Clusters  []json.RawMessage `json:"clusters"`
}

// IsDeleted reports whether a config discovery service sent the notice that the configuration was deleted.
func IsDeleted(config []byte) bool {
	var h head
	if json.Unmarshal(config, &h) != nil {
		return false
	}
	kind := strings.ToLower(cmp.Or(h.Auth.Type, "static"))
	return len(h.Listeners) == 0 && len(h.Clusters) == 0 && (kind == "static" || kind == "plaintext") &&
		h.Auth.Credentials["username"] == dummyUser && h.Auth.Credentials["password"] == dummyPassword
}

// NameOf is the name in a configuration, NAMESPACE/NAME under an operator; empty: it has none.
func NameOf(config []byte) string {
	var h head
	if json.Unmarshal(config, &h) != nil {
		return ""
	}
	return h.Admin.Name
}

// PatchNode returns a configuration with the address of a node in place of STUNner's placeholder for it, in every listener that has it.
// Everything else stays as it is, unknown keys too. A configuration that is no JSON object is returned unchanged. An
// empty address, for a node whose address is not known, becomes $STUNNER_ADDR, as from STUNner's operator.
func PatchNode(config []byte, address string) []byte {
	if !bytes.Contains(config, []byte(nodeAddress)) {
		return config
	}
	var outer map[string]json.RawMessage
	var listeners []map[string]json.RawMessage
	if json.Unmarshal(config, &outer) != nil || json.Unmarshal(outer["listeners"], &listeners) != nil {
		return config
	}
	if address == "" {
		address = "$" + ownAddress
	}
	changed := false
	for _, l := range listeners {
		var at string
		if json.Unmarshal(l["address"], &at) == nil && at == nodeAddress {
			l["address"], _ = json.Marshal(address) // a text has a JSON form
			changed = true
		}
	}
	if !changed {
		return config
	}
	var err error
	if outer["listeners"], err = json.Marshal(listeners); err != nil {
		return config
	}
	text, err := json.Marshal(outer)
	if err != nil {
		return config
	}
	return text
}
