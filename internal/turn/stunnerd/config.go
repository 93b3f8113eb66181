package stunnerd

import (
	"slices"
	"strings"
)

// Text is any scalar of the file, as it was written: "3478", 3478 and $PORT are all valid for a number.
type Text string

// UnmarshalText stores the text unchanged.
func (t *Text) UnmarshalText(text []byte) error {
	*t = Text(text)
	return nil
}

// Config is a stunnerd configuration file.
type Config struct {
	Version   Text       `yaml:"version"`
	Admin     Admin      `yaml:"admin,null"`
	Auth      Auth       `yaml:"auth,null"`
	Listeners []Listener `yaml:"listeners,null"`
	Clusters  []Cluster  `yaml:"clusters,null"`
}

// Admin is about the process.
type Admin struct {
	Name            Text `yaml:"name,null"`
	LogLevel        Text `yaml:"loglevel,null"`
	MetricsEndpoint Text `yaml:"metrics_endpoint,null"`
	// HealthcheckEndpoint: absent means http://:8086, empty means none.
	HealthcheckEndpoint *Text    `yaml:"healthcheck_endpoint,null"`
	UserQuota           Text     `yaml:"user_quota,null"`
	OffloadEngine       Text     `yaml:"offload_engine,null"`
	OffloadInterfaces   []Text   `yaml:"offload_interfaces,null"`
	LicenseConfig       *License `yaml:"license_config,null"`
}

// License is parsed and has no effect.
type License struct {
	Key  Text `yaml:"key,long,null"`
	HMAC Text `yaml:"hmac,long,null"`
}

// Auth says who may allocate. Only the keys of Credentials that belong to the type count, as in STUNner.
type Auth struct {
	Type        Text            `yaml:"type,null"`
	Realm       Text            `yaml:"realm,null"`
	Credentials map[string]Text `yaml:"credentials,null"`
}

// Listener is one address that clients connect to.
type Listener struct {
	Name          Text   `yaml:"name,null"`
	Protocol      Text   `yaml:"protocol,null"`
	PublicAddress Text   `yaml:"public_address,null"`
	PublicPort    Text   `yaml:"public_port,null"`
	Address       Text   `yaml:"address,null"`
	Port          Text   `yaml:"port,null"`
	MinRelayPort  Text   `yaml:"min_relay_port,null"` // v1alpha1
	MaxRelayPort  Text   `yaml:"max_relay_port,null"` // v1alpha1
	Cert          Text   `yaml:"cert,long,null"`
	Key           Text   `yaml:"key,long,null"`
	Routes        []Text `yaml:"routes,null"`
}

// Cluster is a set of peers.
type Cluster struct {
	Name      Text   `yaml:"name,null"`
	Type      Text   `yaml:"type,null"`
	Protocol  Text   `yaml:"protocol,null"`
	Endpoints []Text `yaml:"endpoints,null"`
}

// Recognize reports whether a file with these outermost keys is one of STUNner's.
func Recognize(keys []string) bool {
	return slices.ContainsFunc(keys, func(key string) bool { return strings.EqualFold(key, "version") || strings.EqualFold(key, "admin") })
}
