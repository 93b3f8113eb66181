package turn

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/weir-lb/weir/internal/cli/files"
	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/keyerror"
	"github.com/weir-lb/weir/internal/kube/lookup"
	"github.com/weir-lb/weir/internal/turn/gateway"
	"github.com/weir-lb/weir/internal/turn/stunnerd"
)

// gatewaySource is the source of a gateway's configuration: a file that is watched, or a URI.
type gatewaySource struct {
	file  *config.File // nil of a URI
	uri   string
	flags *gatewayFlags
	limit int         // instead of limits.unauthenticated; 0: none
	found *discovered // nil: not of a config discovery service
	level string      // of stunnerd's -l; empty: the configuration's
}

// isURI distinguishes a TURN URI from the name of a file.
func isURI(text string) bool {
	scheme, _, _ := strings.Cut(text, ":")
	return scheme == "turn" || scheme == "turns" || strings.Contains(text, "://") && scheme != "file"
}

// source parses the command line; it opens nothing.
func (f *gatewayFlags) source(args []string) (*gatewaySource, error) {
	if len(args) == 1 && !isURI(args[0]) {
		if err := f.config.Args(nil, args); err != nil {
			return nil, err
		}
		args = nil
	}
	limit, err := f.limit()
	if err != nil {
		return nil, err
	}
	peers := len(f.peers)+len(f.tcpPeers) > 0
	switch {
	case f.config.Path == "" && len(args) == 0:
		return nil, errors.New("no configuration; name a FILE, or write turn://USER:PASSWORD@ADDRESS:PORT")
	case f.config.Path != "" && len(args) > 0:
		return nil, errors.New("-c and a TURN URI exclude each other; remove one")
	case f.config.Path != "" && peers:
		return nil, errors.New("--peers and --tcp-peers belong to a TURN URI; a file has clusters")
	case len(args) > 1:
		return nil, fmt.Errorf("%d TURN URIs; write one, or list the listeners in a file", len(args))
	case len(args) == 1:
		return &gatewaySource{uri: args[0], flags: f, limit: limit}, nil
	}
	path := strings.TrimPrefix(f.config.Path, "file://")
	scheme, _, ok := strings.Cut(path, "://")
	switch {
	case ok && slices.Contains([]string{"http", "https", "ws", "wss"}, scheme), path == originKubernetes:
		found, err := newDiscovered(path, f.id, true, f.cluster)
		return &gatewaySource{found: found, flags: f, limit: limit}, err
	case ok:
		return nil, fmt.Errorf("-c %s: a configuration is not fetched by %s; name a file, such as one that a ConfigMap mounts, or the http:// URL of a config discovery service", path, scheme)
	case f.id != "" || f.cluster != (lookup.Config{}):
		return nil, errors.New("--id, --kubeconfig and --context belong to the URL of a config discovery service, or to k8s")
	}
	return &gatewaySource{file: config.NewFile(path), flags: f, limit: limit}, nil
}

// load reads the current configuration. text is for comparison by a watch.
func (s *gatewaySource) load() (plan *files.GatewayPlan, text []byte, err error) {
	if s.found != nil {
		return s.found.load(s)
	}
	if s.file == nil {
		c, err := stunnerd.FromURI(s.uri, s.flags.peers, s.flags.tcpPeers)
		err = asFlag(&c, err)
		plan = &files.GatewayPlan{Gateway: c, Log: stunnerd.LogLevels{All: slog.LevelInfo}}
		if s.level != "" {
			s.levels(plan)
		}
		return s.limited(plan), nil, err
	}
	text, err = s.file.Read()
	if err != nil {
		return nil, nil, fmt.Errorf("configuration: %w", err)
	}
	plan, err = s.parse(text)
	return plan, text, err
}

// asFlag gives an error about peers of a URI the name of the flag that listed them, which is that of their cluster.
func asFlag(c *gateway.Config, err error) error {
	var wrong *keyerror.Error
	if !errors.As(err, &wrong) {
		return err
	}
	for i := range c.Clusters {
		if below, ok := strings.CutPrefix(wrong.Key, fmt.Sprintf("clusters[%d].endpoints", i)); ok {
			return keyerror.At("--"+c.Clusters[i].Name+below, wrong.Err)
		}
	}
	return err
}

// parse reads the text of the file.
func (s *gatewaySource) parse(text []byte) (*files.GatewayPlan, error) {
	plan, err := files.Gateway(s.name(), text)
	if err != nil {
		return nil, err
	}
	if s.found != nil {
		s.found.translate(plan)
	}
	if s.level != "" {
		s.levels(plan)
	}
	return s.limited(plan), nil
}

// name is where the configuration comes from, for messages; empty of a URI.
func (s *gatewaySource) name() string {
	switch {
	case s.found != nil:
		return s.found.watcher.URL()
	case s.file != nil:
		return s.file.Path()
	}
	return ""
}

// levels applies stunnerd's -l, which wins over the configuration.
func (s *gatewaySource) levels(plan *files.GatewayPlan) {
	levels, notes := stunnerd.ParseLogLevel(s.level, &plan.Gateway)
	plan.Log = levels
	for _, note := range notes {
		plan.Notes = append(plan.Notes, "-l: "+note.Error())
	}
}

// limited applies --unauthenticated.
func (s *gatewaySource) limited(plan *files.GatewayPlan) *files.GatewayPlan {
	if s.limit > 0 {
		plan.Gateway.Limits.Unauthenticated = s.limit
	}
	return plan
}
