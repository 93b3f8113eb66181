package authservice

import (
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // what the draft and every TURN server use
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// maxConfigs bounds the configurations of a service.
const maxConfigs = 16_384

// Options are what a service does beyond the configurations of gateways.
type Options struct {
	PublicHost string           // in place of the public addresses of listeners, unless a request names another; empty: theirs
	Key        string           // what requests must have as their key; empty: nothing
	Now        func() time.Time // wall clock; nil: time.Now
}

// Service answers requests for credentials. Its methods may be called from any goroutine.
type Service struct {
	options Options

	mu      sync.RWMutex // guards what follows
	configs map[string]config
	stats   Stats
}

// Stats is what a service has done.
type Stats struct {
	Configs   int    `json:"configs" metric:"weir_turn_auth_configs" help:"Gateways for which the authentication service has credentials."`
	Issued    uint64 `json:"issued" metric:"weir_turn_auth_issued_total" help:"Requests that were answered with credentials."`
	Refused   uint64 `json:"refused" metric:"weir_turn_auth_refused_total" help:"Requests without the right key."`
	Wrong     uint64 `json:"wrong" metric:"weir_turn_auth_wrong_total" help:"Requests with a wrong parameter."`
	Unmatched uint64 `json:"unmatched" metric:"weir_turn_auth_unmatched_total" help:"Requests that no listener fits, or that came before the first configuration."`
	Ignored   uint64 `json:"ignored" metric:"weir_turn_auth_ignored_total" help:"Configurations that could not be read."`
}

// New makes a service without configurations. An error: a public host that is none.
func New(o Options) (*Service, error) {
	if o.PublicHost != "" && public(o.PublicHost) == "" {
		return nil, fmt.Errorf("public address %q: write an address or a host name", o.PublicHost)
	}
	o.PublicHost = public(o.PublicHost)
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Service{options: o, configs: map[string]config{}}, nil
}

// Set takes over the configuration of a gateway, JSON as of STUNner's operator, in place of the one with its name. The error of one that
// cannot be used names the key, never a value; credentials of the one before it are not given out any more.
func (s *Service) Set(text []byte) error {
	name, c, err := parse(text)
	s.mu.Lock()
	defer s.mu.Unlock()
	_, known := s.configs[name]
	if err == nil && !known && len(s.configs) >= maxConfigs {
		err = fmt.Errorf("there are %d configurations already", maxConfigs)
	}
	if err != nil {
		s.stats.Ignored++
		delete(s.configs, name)
		return err
	}
	s.configs[name] = c
	return nil
}

// Remove forgets the configuration of a gateway, by its admin.name.
func (s *Service) Remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.configs, name)
}

// Replace takes over these configurations, and forgets all others. Those that cannot be used are counted.
func (s *Service) Replace(all [][]byte) {
	configs, ignored := map[string]config{}, uint64(0)
	for _, text := range all {
		name, c, err := parse(text)
		if err != nil || len(configs) >= maxConfigs {
			ignored++
			continue
		}
		configs[name] = c
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.configs = configs
	s.stats.Ignored += ignored
}

// Stats is what the service has done.
func (s *Service) Stats() Stats {
	s.mu.RLock()
	defer s.mu.RUnlock()
	stats := s.stats
	stats.Configs = len(s.configs)
	return stats
}

// Handler answers requests.
func (s *Service) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { s.answer(w, r, s.turn) })
	mux.HandleFunc("GET /ice", func(w http.ResponseWriter, r *http.Request) { s.answer(w, r, s.ice) })
	return mux
}

// server is an element of iceServers, the RTCIceServer of WebRTC.
type server struct {
	Credential string   `json:"credential"`
	URLs       []string `json:"urls"`
	Username   string   `json:"username"`

	ephemeral bool
}

// refusal is an answer without credentials.
type refusal struct {
	status int
	text   string
}

func (s *Service) answer(w http.ResponseWriter, r *http.Request, body func(*question, []server) any) {
	q, err := parseQuestion(r.URL.RawQuery)
	if err != nil {
		s.refuse(w, refusal{http.StatusBadRequest, err.Error()})
		return
	}
	servers, no := s.servers(&q)
	if no != nil {
		s.refuse(w, *no)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.Header().Set("Cache-Control", "no-store")
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(body(&q, servers))
}

func (s *Service) refuse(w http.ResponseWriter, no refusal) {
	s.mu.Lock()
	switch no.status {
	case http.StatusBadRequest:
		s.stats.Wrong++
	case http.StatusForbidden:
		s.stats.Refused++
	default:
		s.stats.Unmatched++
	}
	s.mu.Unlock()
	w.Header().Set("Cache-Control", "no-store")
	http.Error(w, no.text, no.status)
}

// Issued are credentials, and where clients find the listeners for which they are.
type Issued struct {
	Username, Password string
	URIs               []string  // as of RFC 7065
	Expires            time.Time // zero: they do not
}

// ErrNone is in the error of Credentials if no listener fits.
var ErrNone = errors.New("no listener with a public address and with authentication fits")

// Credentials are those for a listener of a gateway, with ephemeral authentication for ttl.
func (s *Service) Credentials(namespace, gateway, listener, username string, ttl time.Duration) (i Issued, err error) {
	q := question{username: username, ttl: ttl, key: s.options.Key, namespace: namespace, gateway: gateway, listener: listener}
	servers, no := s.servers(&q)
	if no != nil {
		return i, fmt.Errorf("%s/%s:%s: %w", namespace, gateway, listener, ErrNone)
	}
	one := &servers[0]
	i = Issued{Username: one.Username, Password: one.Credential, URIs: one.URLs}
	if one.ephemeral {
		i.Expires = s.options.Now().Add(ttl)
	}
	return i, nil
}

// turn is the answer of the draft: of one gateway.
func (s *Service) turn(q *question, servers []server) any {
	return struct {
		Password string   `json:"password"`
		TTL      int64    `json:"ttl"`
		URIs     []string `json:"uris"`
		Username string   `json:"username"`
	}{servers[0].Credential, int64(q.ttl / time.Second), servers[0].URLs, servers[0].Username}
}

// ice is a configuration for RTCPeerConnection.
func (s *Service) ice(q *question, servers []server) any {
	return struct {
		Servers []server `json:"iceServers"`
		Policy  string   `json:"iceTransportPolicy"`
	}{servers, q.policy}
}

// servers are the credentials and addresses that fit a request, by the names of the gateways' configurations.
func (s *Service) servers(q *question) (all []server, no *refusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.options.Key != "" && subtle.ConstantTimeCompare([]byte(s.options.Key), []byte(q.key)) != 1 {
		return nil, &refusal{http.StatusForbidden, "key: not the right one"}
	}
	if len(s.configs) == 0 {
		return nil, &refusal{http.StatusInternalServerError, "no configuration of a gateway is available"}
	}
	host := q.host
	if host == "" {
		host = s.options.PublicHost
	}
	for _, name := range slices.Sorted(maps.Keys(s.configs)) {
		c := s.configs[name]
		one := server{}
		for i := range c.listeners {
			if uri := c.listeners[i].uri(host); uri != "" && q.fits(&c.listeners[i]) {
				one.URLs = append(one.URLs, uri)
			}
		}
		if len(one.URLs) == 0 || c.kind == authNone {
			continue
		}
		one.ephemeral = c.kind == authEphemeral
		one.Username, one.Credential = c.credentials(q, s.options.Now())
		all = append(all, one)
	}
	if len(all) == 0 {
		return nil, &refusal{http.StatusNotFound, ErrNone.Error()}
	}
	s.stats.Issued++
	return all, nil
}

// credentials are those of a gateway for a request.
func (c *config) credentials(q *question, now time.Time) (user, password string) {
	if c.kind == authStatic {
		return c.user, c.password
	}
	user = strconv.FormatInt(now.Add(q.ttl).Unix(), 10)
	if q.username != "" {
		user += ":" + q.username
	}
	mac := hmac.New(sha1.New, []byte(c.secret))
	mac.Write([]byte(user))
	return user, base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
