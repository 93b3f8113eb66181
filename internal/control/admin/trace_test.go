package admin

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/weir-lb/weir/client"
)

// A stream brings lines as they are written, and ends with its reader or with the server.
func TestTraceStreams(t *testing.T) {
	next, gone := make(chan int), make(chan error, 1)
	s := startServer(t, Config{Trace: func(ctx context.Context, query url.Values, write func(any, bool) error) error {
		if query.Get("service") != "coaps" {
			return fmt.Errorf("service %q", query.Get("service"))
		}
		for {
			select {
			case <-ctx.Done():
				gone <- ctx.Err()
				return nil
			case n := <-next:
				if err := write(n, true); err != nil {
					gone <- err
					return err
				}
			}
		}
	}})
	caller := client.New(s.Address(), testToken)
	go func() { next <- 1 }()
	seen := 0
	err := caller.Stream(t.Context(), "/trace", url.Values{"service": {"coaps"}}, func(line []byte) (bool, error) {
		if seen++; string(line) != fmt.Sprint(seen) {
			return false, fmt.Errorf("line %d is %q", seen, line)
		}
		if seen == 3 {
			return false, nil
		}
		following := seen + 1
		go func() { next <- following }() // only after this one came: it was not kept back
		return true, nil
	})
	if err != nil || seen != 3 {
		t.Errorf("%d lines, %v", seen, err)
	}
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("after the reader went: %v", err)
	}
	if err := caller.Stream(t.Context(), "/trace", nil, nil); err == nil || err.Error() != `service ""` {
		t.Errorf("a bad request: %v", err)
	}
}

func TestTraceRefusals(t *testing.T) {
	s := startServer(t, Config{Trace: func(context.Context, url.Values, func(any, bool) error) error {
		return fmt.Errorf("%w: another has it", ErrBusy)
	}})
	if code, body := fetch(t, "POST", "http://"+s.Address()+"/trace", nil); code != 409 || !strings.Contains(body, "another has it") {
		t.Errorf("busy: %d %s", code, body)
	}
	if code, _ := fetch(t, "GET", "http://"+s.Address()+"/trace", nil); code != 405 {
		t.Errorf("GET: %d", code)
	}
	s = startServer(t, Config{})
	if err := client.New(s.Address(), testToken).Stream(t.Context(), "/trace", nil, nil); err == nil {
		t.Error("there is no trace, and no error")
	}
}
