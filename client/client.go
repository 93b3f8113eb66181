package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/weir-lb/weir/api/v1"
)

// Client sends requests to the admin address of a running part. All its methods may be called concurrently.
type Client struct {
	address string
	token   string
	parts   []string
	http    *http.Client
	limit   int64 // bytes that are read of an answer
}

// New returns a client for an address, HOST:PORT or unix:/path; nothing is opened yet. The token is what HOST:PORT needs; it may be
// empty with a Unix socket. Parts are the names of v1.PartHeader that may answer, such as lb and nat: the answer of any other part is
// an error. Without parts any is accepted.
func New(address, token string, parts ...string) *Client {
	transport := &http.Transport{DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10}
	c := &Client{address: address, token: token, parts: parts, limit: maxAnswer, http: &http.Client{Transport: transport, Timeout: timeout}}
	transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return c.dial(ctx) }
	return c
}

// Limit bounds how many bytes of an answer are read; a longer one is an error. Without it the bound is that of the longest list of flows.
// Call it before the first request. It returns c.
func (c *Client) Limit(bytes int64) *Client {
	c.limit = bytes
	return c
}

func (c *Client) dial(ctx context.Context) (net.Conn, error) {
	dialer := net.Dialer{Timeout: dialTimeout}
	if path, ok := strings.CutPrefix(c.address, "unix:"); ok {
		return dialer.DialContext(ctx, "unix", path)
	}
	return dialer.DialContext(ctx, "tcp", c.address)
}

func (c *Client) url(path string) string {
	if strings.HasPrefix(c.address, "unix:") {
		return "http://localhost" + path
	}
	host := c.address
	if strings.HasPrefix(host, ":") {
		host = "localhost" + host
	}
	return "http://" + host + path
}

// Get requests a path and decodes its JSON answer. Use it for a path that has no method here.
func (c *Client) Get(ctx context.Context, path string, query url.Values, into any) error {
	return c.do(ctx, http.MethodGet, path, query, nil, into)
}

// Post requests a change and decodes its JSON answer. Use it for a path that has no method here.
func (c *Client) Post(ctx context.Context, path string, query url.Values, into any) error {
	return c.do(ctx, http.MethodPost, path, query, nil, into)
}

// Send posts a body and decodes the JSON answer. Use it for a path that has no method here.
func (c *Client) Send(ctx context.Context, path string, body io.Reader, into any) error {
	return c.do(ctx, http.MethodPost, path, nil, body, into)
}

const (
	timeout     = 30 * time.Second // of one request; streams have none
	dialTimeout = 5 * time.Second
	maxAnswer   = v1.MaxFlows * 250 // bytes that are read of an answer: the maximum number of flows of some 250 bytes
)

func (c *Client) do(ctx context.Context, method, path string, query url.Values, content io.Reader, into any) error {
	response, err := c.accepted(ctx, c.http, method, path, query, content)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, c.limit+1))
	switch {
	case err != nil:
		return fmt.Errorf("answer of %s: %w", c.address, err)
	case int64(len(body)) > c.limit:
		return fmt.Errorf("answer of %s: longer than %d bytes; request less", c.address, c.limit)
	case into == nil:
		return nil
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("answer of %s: %w", c.address, err)
	}
	return nil
}

// accepted sends a request that is answered with 200; any other answer is an [Error]. The caller closes the answer's body.
func (c *Client) accepted(ctx context.Context, by *http.Client, method, path string, query url.Values, content io.Reader) (*http.Response, error) {
	response, err := c.send(ctx, by, method, path, query, content)
	if err != nil || response.StatusCode == http.StatusOK {
		return response, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxLine))
	if err != nil {
		return nil, fmt.Errorf("answer of %s: %w", c.address, err)
	}
	return nil, c.refused(method, path, response, body)
}

// send sends a request. The caller closes the answer's body.
func (c *Client) send(ctx context.Context, by *http.Client, method, path string, query url.Values, content io.Reader) (*http.Response, error) {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, method, c.url(path), content)
	if err != nil {
		return nil, fmt.Errorf("admin address %q: write HOST:PORT or unix:/path", c.address)
	}
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	response, err := by.Do(request)
	if err != nil {
		var wrapped *url.Error
		if errors.As(err, &wrapped) {
			err = wrapped.Err
		}
		return nil, c.unanswered(err)
	}
	if err := c.recognize(response); err != nil {
		return nil, errors.Join(err, response.Body.Close())
	}
	return response, nil
}

// recognize checks which part has answered.
func (c *Client) recognize(response *http.Response) error {
	part := response.Header.Get(v1.PartHeader)
	switch {
	case len(c.parts) == 0 || slices.Contains(c.parts, part):
		return nil
	case part == "":
		return fmt.Errorf("%s does not say that it is weir %s: another program answers there, or an older weir; name the right --admin", c.address, c.parts[0])
	}
	return fmt.Errorf("%s is weir %s, not weir %s; name the right --admin", c.address, part, c.parts[0])
}
