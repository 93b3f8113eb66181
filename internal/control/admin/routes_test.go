package admin

import (
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-lb/weir/client"
)

// A part's own routes are served behind the guard, each with its own bound on the body.
func TestRoutes(t *testing.T) {
	length := func(r *http.Request) (any, error) {
		text, err := io.ReadAll(r.Body)
		if err == nil && len(text) == 0 {
			err = errors.New("nothing came")
		}
		return len(text), err
	}
	socket := "unix:" + filepath.Join(t.TempDir(), "s")
	startServer(t, Config{Address: socket, Routes: []Route{
		{Pattern: "POST /large", MaxBody: 1 << 20, Answer: length},
		{Pattern: "POST /small", Answer: length},
	}})
	caller := client.New(socket, "")
	for _, c := range []struct {
		path string
		size int
		want string
	}{
		{"/large", 1 << 20, ""},
		{"/large", 1<<20 + 1, "body too large"},
		{"/small", 64 << 10, ""},
		{"/small", 64<<10 + 1, "body too large"},
		{"/small", 0, "nothing came"},
	} {
		got := 0
		err := caller.Send(t.Context(), c.path, strings.NewReader(strings.Repeat("x", c.size)), &got)
		if c.want == "" && (err != nil || got != c.size) {
			t.Errorf("%s with %d bytes: %d, %v", c.path, c.size, got, err)
		}
		if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s with %d bytes: %v, want %q", c.path, c.size, err, c.want)
		}
	}

	_, port, _ := net.SplitHostPort(startServer(t, Config{Address: "0.0.0.0:0", Routes: []Route{{Pattern: "POST /small", Answer: length}}}).Address())
	if status, body := fetch(t, http.MethodPost, "http://127.0.0.1:"+port+"/small", nil); status != http.StatusForbidden {
		t.Errorf("beyond loopback without a token: %d %s, want 403", status, body)
	}
}
