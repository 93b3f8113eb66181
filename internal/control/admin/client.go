package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Client sends requests to the admin address of a running part. Safe for concurrent use.
type Client struct {
	address string
	token   string
	parts   []string
	http    *http.Client
}

// NewClient returns a client for an address; nothing is opened yet. address is as in Config.Address; token may be empty. An
// answer of a part that is none of parts is an error; without parts any is accepted.
func NewClient(address, token string, parts ...string) *Client {
	transport := &http.Transport{DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10}
	c := &Client{address: address, token: token, parts: parts, http: &http.Client{Transport: transport, Timeout: writeTimeout}}
	transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return c.dial(ctx) }
	return c
}

func (c *Client) dial(ctx context.Context) (net.Conn, error) {
	dialer := net.Dialer{Timeout: 5 * time.Second}
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

// Get requests a path and decodes the JSON answer.
func (c *Client) Get(ctx context.Context, path string, query url.Values, into any) error {
	return c.do(ctx, http.MethodGet, path, query, nil, into)
}

// Post requests a change.
func (c *Client) Post(ctx context.Context, path string, query url.Values, into any) error {
	return c.do(ctx, http.MethodPost, path, query, nil, into)
}

// Send posts a body.
func (c *Client) Send(ctx context.Context, path string, body io.Reader, into any) error {
	return c.do(ctx, http.MethodPost, path, nil, body, into)
}

// maxAnswer bounds what a client reads: MaxFlows flows of some 250 bytes.
const maxAnswer = MaxFlows * 250

func (c *Client) do(ctx context.Context, method, path string, query url.Values, content io.Reader, into any) error {
	response, err := c.send(ctx, c.http, method, path, query, content)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("answer of %s: %w", c.address, err)
	}
	if response.StatusCode != http.StatusOK {
		return c.refused(method, path, response, body)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("answer of %s: %w", c.address, err)
	}
	return nil
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
	part := response.Header.Get(PartHeader)
	switch {
	case len(c.parts) == 0 || slices.Contains(c.parts, part):
		return nil
	case part == "":
		return fmt.Errorf("%s does not say that it is weir %s: another program answers there, or an older weir; name the right --admin", c.address, c.parts[0])
	}
	return fmt.Errorf("%s is weir %s, not weir %s; name the right --admin", c.address, part, c.parts[0])
}

// refused returns the error in an answer that is not 200.
func (c *Client) refused(method, path string, response *http.Response, body []byte) error {
	var refusal struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(body, &refusal) == nil && refusal.Error != "" {
		return errors.New(refusal.Error)
	}
	if response.StatusCode == http.StatusNotFound {
		return fmt.Errorf("%s %s at %s: %s; where there are probes and metrics only, leave --admin out or name the Unix socket", method, path, c.address, response.Status)
	}
	return fmt.Errorf("%s %s at %s: %s", method, path, c.address, response.Status)
}

// unanswered adds what to do when nobody listens at the address.
func (c *Client) unanswered(err error) error {
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("ask %s: %w; nobody answers there: start it, or name its --admin", c.address, err)
	}
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("ask %s: %w; ask as the user that runs it, such as root", c.address, err)
	}
	return fmt.Errorf("ask %s: %w", c.address, err)
}

// Console opens a console stream: write lines, read answers, close it.
func (c *Client) Console(ctx context.Context) (io.ReadWriteCloser, error) {
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, c.unanswered(err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url("/console"), nil)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("admin address %q: write HOST:PORT or unix:/path", c.address)
	}
	request.Header.Set("Connection", "Upgrade")
	request.Header.Set("Upgrade", consoleProtocol)
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	reader := bufio.NewReader(conn)
	if err := request.Write(conn); err != nil {
		conn.Close()
		return nil, fmt.Errorf("ask %s: %w", c.address, err)
	}
	response, err := http.ReadResponse(reader, request)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("answer of %s: %w", c.address, err)
	}
	if err := c.recognize(response); err != nil {
		conn.Close()
		return nil, err
	}
	if response.StatusCode != http.StatusSwitchingProtocols {
		conn.Close()
		return nil, fmt.Errorf("%s has no console: %s", c.address, response.Status)
	}
	return &stream{Conn: conn, reader: reader}, nil
}

// stream continues to read where the HTTP answer ended.
type stream struct {
	net.Conn
	reader *bufio.Reader
}

func (s *stream) Read(b []byte) (int, error) { return s.reader.Read(b) }
