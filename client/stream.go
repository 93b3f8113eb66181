package client

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"

	"github.com/weir-lb/weir/api/v1"
)

// maxLine bounds a line of a stream.
const maxLine = 64 << 10

// Stream requests a path that streams lines. It calls each with every line until each returns false, ctx ends (no error
// then), or the other side ends. The line is valid during the call.
func (c *Client) Stream(ctx context.Context, path string, query url.Values, each func(line []byte) (bool, error)) error {
	endless := *c.http
	endless.Timeout = 0
	response, err := c.accepted(ctx, &endless, http.MethodPost, path, query, nil)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(make([]byte, 4096), maxLine)
	for lines.Scan() {
		if more, err := each(lines.Bytes()); err != nil || !more {
			return err
		}
	}
	switch {
	case ctx.Err() != nil:
		return nil
	case lines.Err() != nil:
		return fmt.Errorf("answer of %s: %w", c.address, lines.Err())
	}
	return fmt.Errorf("%s ended the answer; weir lb status says whether it still runs", c.address)
}

// Console opens POST /console of `weir nat` as a stream: write a line, read its answer, and close the stream at the end. Closing is
// also what ends a read that waits; ctx bounds the opening only.
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
	request.Header.Set("Upgrade", v1.ConsoleProtocol)
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	reader := bufio.NewReader(conn)
	if err := request.Write(conn); err != nil {
		conn.Close()
		return nil, fmt.Errorf("query %s: %w", c.address, err)
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
	return &console{Conn: conn, reader: reader}, nil
}

// console continues to read where the HTTP answer ended.
type console struct {
	net.Conn
	reader *bufio.Reader
}

func (s *console) Read(b []byte) (int, error) { return s.reader.Read(b) }
