package discovery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Limits of a configuration and of a service.
const (
	MaxConfig  = 1 << 20 // bytes of a configuration
	MaxConfigs = 16_384  // configurations of a service
	maxList    = 64 << 20
)

// ErrNotFound is in the error of Get if the service has no such configuration.
var ErrNotFound = errors.New("the service has no such configuration")

// getTimeout bounds a request without a watch.
const getTimeout = 20 * time.Second

// Get reads one configuration once. node, if not empty, is the name of the node whose configuration is wanted.
func Get(ctx context.Context, origin Origin, id ID, node string) ([]byte, error) {
	if id.Name == "" || !id.valid() {
		return nil, fmt.Errorf("%q names no configuration", id)
	}
	return get(ctx, origin.url("http", id.path(), nodeQuery(node)), MaxConfig)
}

// List reads all configurations of a namespace, or with an empty namespace all there are.
func List(ctx context.Context, origin Origin, namespace string) ([][]byte, error) {
	text, err := get(ctx, origin.url("http", ID{Namespace: namespace}.path(), nil), maxList)
	if err != nil {
		return nil, err
	}
	return ReadList(text)
}

// ReadList reads the answer of a service that lists configurations. One that is longer than MaxConfig is an error.
func ReadList(text []byte) ([][]byte, error) {
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("the list of configurations is no JSON: %w", err)
	}
	if len(list.Items) > MaxConfigs {
		return nil, fmt.Errorf("%d configurations are more than %d", len(list.Items), MaxConfigs)
	}
	all := make([][]byte, 0, len(list.Items))
	for i, item := range list.Items {
		if len(item) > MaxConfig {
			return nil, fmt.Errorf("configuration %d of the list is longer than %d bytes", i, MaxConfig)
		}
		all = append(all, item)
	}
	return all, nil
}

func nodeQuery(node string) url.Values {
	query := url.Values{}
	if node != "" {
		query.Set("node", node)
	}
	return query
}

func get(ctx context.Context, address string, limit int64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, getTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, MaxResponseHeaderBytes: maxHeader, DisableKeepAlives: true}
	client := http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("config discovery: %w", err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("config discovery: read %s: %w", address, err)
	case answer.StatusCode == http.StatusNotFound:
		return nil, fmt.Errorf("%s: %w", address, ErrNotFound)
	case answer.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("config discovery: %s answers %s%s", address, answer.Status, serverError(text))
	case int64(len(text)) > limit:
		return nil, fmt.Errorf("config discovery: the answer of %s is longer than %d bytes", address, limit)
	}
	return text, nil
}

// serverError is the message of an error's body, as a part of an error.
func serverError(text []byte) string {
	var body struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(text, &body) != nil || body.Message == "" {
		return ""
	}
	return ": " + shortened(strings.ToValidUTF8(body.Message, "?"))
}
