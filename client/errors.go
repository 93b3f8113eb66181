package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"syscall"

	"github.com/weir-lb/weir/api/v1"
)

// Error is the answer of a server that refused a request. Its text is the server's own, without a prefix.
//
//	400  the request is wrong                     404  no such service or backend, or this part does not serve the path
//	401  the token is missing or wrong            409  the change was refused, or another client has the trace
//	412  another configuration is in force than the one that the change is for: ETag and Generation name it
//	403  over TCP the server has no token, or     413  the body is too long
//	     the name of the host is not its own      503  too many requests at a time
type Error struct {
	Status  int    // of HTTP
	Message string // for people

	Generation uint64 // with 412: the configuration in force
	ETag       string // likewise
}

func (e *Error) Error() string { return e.Message }

// StatusOf returns the HTTP status of an [Error] in err, or 0 if there is none.
func StatusOf(err error) int {
	var refused *Error
	if errors.As(err, &refused) {
		return refused.Status
	}
	return 0
}

// refused returns the error in an answer that is not 200.
func (c *Client) refused(method, path string, response *http.Response, body []byte) error {
	var refusal v1.Refusal
	text := fmt.Sprintf("%s %s at %s: %s", method, path, c.address, response.Status)
	switch {
	case json.Unmarshal(body, &refusal) == nil && refusal.Error != "":
		text = refusal.Error
	case response.StatusCode == http.StatusNotFound:
		text += "; where there are probes and metrics only, leave --admin out or name the Unix socket"
	}
	return &Error{Status: response.StatusCode, Message: text, Generation: refusal.Generation, ETag: refusal.ETag}
}

// unanswered adds what to do when no program listens at the address.
func (c *Client) unanswered(err error) error {
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("query %s: %w; no program answers there: start it, or name its --admin", c.address, err)
	}
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("query %s: %w; use the command as the user that runs it, such as root", c.address, err)
	}
	return fmt.Errorf("query %s: %w", c.address, err)
}
