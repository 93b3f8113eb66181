package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/weir-lb/weir/api/v1"
)

// ConfigPath returns the path of an object from its names: ConfigPath("services", "echo", "backends", "a") is
// /services/echo/backends/a. Without names it is that of the whole configuration.
func ConfigPath(names ...string) string {
	var b strings.Builder
	for _, name := range names {
		b.WriteString("/" + url.PathEscape(name))
	}
	if b.Len() == 0 {
		return "/"
	}
	return b.String()
}

// Config requests the object at a path of the configuration in force. Value gets its value; it may be nil.
func (c *Client) Config(ctx context.Context, path string, value any) (*v1.Configuration, error) {
	answer := &v1.Configuration{Value: value}
	if err := c.Get(ctx, "/config"+strings.TrimSuffix(path, "/"), nil, answer); err != nil {
		return nil, err
	}
	return answer, nil
}

// Change makes changes of the configuration, all of them or none. Where request.If names another configuration than the one in force, the
// error has the status 412 and [Error.ETag] the one in force.
func (c *Client) Change(ctx context.Context, request v1.ConfigRequest) (*v1.ConfigAnswer, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("encode the changes: %w", err)
	}
	answer := new(v1.ConfigAnswer)
	if err := c.Send(ctx, "/config", bytes.NewReader(body), answer); err != nil {
		return nil, err
	}
	return answer, nil
}

// Set makes the object at a path exactly this.
func (c *Client) Set(ctx context.Context, path string, value any) (*v1.ConfigAnswer, error) {
	return c.change(ctx, "set", path, value)
}

// Merge gives an object these keys and leaves its others; a key with null is removed. An object that is not there is made.
func (c *Client) Merge(ctx context.Context, path string, value any) (*v1.ConfigAnswer, error) {
	return c.change(ctx, "merge", path, value)
}

// Add is Set for an object that is not there yet; if there is another one, the error has the status 409.
func (c *Client) Add(ctx context.Context, path string, value any) (*v1.ConfigAnswer, error) {
	return c.change(ctx, "add", path, value)
}

// Remove takes out the object at a path. If it is not there, nothing happens.
func (c *Client) Remove(ctx context.Context, path string) (*v1.ConfigAnswer, error) {
	return c.Change(ctx, v1.ConfigRequest{Changes: []v1.ConfigChange{{Op: "remove", Path: path}}})
}

func (c *Client) change(ctx context.Context, op, path string, value any) (*v1.ConfigAnswer, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("encode the value of %s: %w", path, err)
	}
	return c.Change(ctx, v1.ConfigRequest{Changes: []v1.ConfigChange{{Op: op, Path: path, Value: text}}})
}

// DiffConfig requests how the configuration in force differs from its file.
func (c *Client) DiffConfig(ctx context.Context) (*v1.ConfigDiff, error) {
	return get[v1.ConfigDiff](ctx, c, "/config-diff", nil)
}

// SaveConfig writes the configuration in force to its file, with the comments there. condition is an etag or generation; empty: any.
func (c *Client) SaveConfig(ctx context.Context, condition string) (*v1.ConfigAnswer, error) {
	return post[v1.ConfigAnswer](ctx, c, "/config-save", values(0, map[string]string{"if": condition}))
}

// RevertConfig ends all run-time changes: the file is in force. condition is as that of SaveConfig.
func (c *Client) RevertConfig(ctx context.Context, condition string) (*v1.ConfigAnswer, error) {
	return post[v1.ConfigAnswer](ctx, c, "/config-revert", values(0, map[string]string{"if": condition}))
}

// WatchConfig follows the configuration: it calls each with every one that comes into force after the generation since, once and in
// order, until each returns false or ctx ends; then it returns nil. since 0 begins with the one in force.
func (c *Client) WatchConfig(ctx context.Context, since uint64, each func(*v1.ConfigEvent) bool) error {
	query := url.Values{}
	if since > 0 {
		query.Set("since", strconv.FormatUint(since, 10))
	}
	return c.Stream(ctx, "/config-watch", query, func(text []byte) (bool, error) {
		var event v1.ConfigEvent
		if err := json.Unmarshal(text, &event); err != nil {
			return false, fmt.Errorf("a line of the configurations: %w", err)
		}
		return each(&event), nil
	})
}
