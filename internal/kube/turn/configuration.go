package turn

// Configuration is one of stunnerd's, API v1, with the fields that Translate sets. Its JSON is what the config discovery service sends.
type Configuration struct {
	Version   string     `json:"version"`
	Admin     Admin      `json:"admin"`
	Auth      Auth       `json:"auth"`
	Listeners []Listener `json:"listeners"`
	Clusters  []Cluster  `json:"clusters"`
}

// Admin is about the process.
type Admin struct {
	Name              string   `json:"name"`
	LogLevel          string   `json:"loglevel,omitempty"`
	Metrics           string   `json:"metrics_endpoint,omitempty"`
	Health            *string  `json:"healthcheck_endpoint"`
	UserQuota         int      `json:"user_quota,omitempty"`
	OffloadEngine     string   `json:"offload_engine,omitempty"`
	OffloadInterfaces []string `json:"offload_interfaces,omitempty"`
}

// Auth says who may allocate.
type Auth struct {
	Type        string            `json:"type"`
	Realm       string            `json:"realm,omitempty"`
	Credentials map[string]string `json:"credentials"`
}

// Listener is one address that clients connect to.
type Listener struct {
	Name          string   `json:"name"`
	Protocol      string   `json:"protocol"`
	PublicAddress string   `json:"public_address,omitempty"`
	PublicPort    int      `json:"public_port,omitempty"`
	Address       string   `json:"address"`
	Port          int      `json:"port"`
	Cert          string   `json:"cert,omitempty"` // base64 of PEM
	Key           string   `json:"key,omitempty"`  // base64 of PEM
	Routes        []string `json:"routes"`
}

// Cluster is a set of peers.
type Cluster struct {
	Name      string   `json:"name"`
	Type      string   `json:"type"`
	Protocol  string   `json:"protocol,omitempty"`
	Endpoints []string `json:"endpoints"`
}

// Redacted is a copy without passwords, secrets, keys and certificates: for logs and golden files.
func (c *Configuration) Redacted() *Configuration {
	other := *c
	other.Auth.Credentials = map[string]string{}
	for key := range c.Auth.Credentials {
		other.Auth.Credentials[key] = redacted
	}
	other.Listeners = append([]Listener(nil), c.Listeners...)
	for i := range other.Listeners {
		l := &other.Listeners[i]
		if l.Cert != "" {
			l.Cert, l.Key = redacted, redacted
		}
	}
	return &other
}

const redacted = "-"
