package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// ErrBusy is wrapped by errors of Config.Trace when another client has the trace; it becomes status 409.
var ErrBusy = errors.New("busy")

// trace streams what Config.Trace writes, one JSON value on a line. An error before the first line is an answer.
func (s *Server) trace(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		writeError(w, http.StatusBadRequest, err)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.stopping, cancel)()
	control := http.NewResponseController(w)
	control.SetReadDeadline(time.Time{}) // the server's ends ctx
	begun := false
	err := s.config.Trace(ctx, r.Form, func(line any, flush bool) error {
		if !begun {
			begun = true
			w.Header().Set("Content-Type", "application/x-ndjson")
			w.Header().Set("Cache-Control", "no-store")
		}
		control.SetWriteDeadline(time.Now().Add(writeTimeout))
		text, err := json.Marshal(line)
		if err == nil {
			_, err = w.Write(append(text, '\n'))
		}
		if err == nil && flush {
			err = control.Flush()
		}
		return err
	})
	switch {
	case begun || err == nil:
	case errors.Is(err, ErrBusy):
		writeError(w, http.StatusConflict, err)
	default:
		writeError(w, http.StatusBadRequest, err)
	}
}

// maxLine bounds a line of a stream.
const maxLine = 64 << 10

// Stream requests a path that streams lines. It calls each with every line until each returns false, ctx ends (no error
// then), or the other side ends. The line is valid during the call.
func (c *Client) Stream(ctx context.Context, path string, query url.Values, each func(line []byte) (bool, error)) error {
	endless := *c.http
	endless.Timeout = 0
	response, err := c.send(ctx, &endless, http.MethodPost, path, query, nil)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		body, err := io.ReadAll(io.LimitReader(response.Body, maxLine))
		if err != nil {
			return fmt.Errorf("answer of %s: %w", c.address, err)
		}
		return c.refused(http.MethodPost, path, response, body)
	}
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
