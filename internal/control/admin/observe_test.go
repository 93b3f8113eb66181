package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/control/history"
	"github.com/weir-lb/weir/internal/metrics"
)

// do sends a request over the Unix socket of a server.
func do(t *testing.T, s *Server, method, path string) (int, string) {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", s.unix)
	}}
	request, err := http.NewRequestWithContext(t.Context(), method, "http://localhost"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// A change leaves a record of who made it and how it ended; a request that reads leaves none.
func TestChangesAreRecorded(t *testing.T) {
	var logged bytes.Buffer
	s := startServer(t, Config{
		Address: "unix:" + filepath.Join(t.TempDir(), "s"), Log: slog.New(slog.NewJSONHandler(&logged, nil)), Status: func() any { return 1 },
		Override: func(_, service, _, _ string) error {
			if service != "known" {
				return ErrUnknownTarget
			}
			return nil
		},
	})
	for _, path := range []string{"/drain?service=known&backend=b", "/down?service=other"} {
		do(t, s, http.MethodPost, path)
	}
	do(t, s, http.MethodGet, "/status")
	var records []map[string]any
	for line := range strings.Lines(logged.String()) {
		var record map[string]any
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatal(err)
		}
		records = append(records, record)
	}
	if len(records) != 2 {
		t.Fatalf("%d records: %s", len(records), &logged)
	}
	who := fmt.Sprintf("uid %d, pid %d", os.Geteuid(), os.Getpid())
	for i, want := range []string{
		"operator action POST /drain service=known&backend=b " + who + " 200", "operator action POST /down service=other " + who + " 404",
	} {
		r := records[i]
		if got := fmt.Sprint(r["msg"], " ", r["action"], " ", r["query"], " ", r["by"], " ", r["status"]); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestEventsAndHistory(t *testing.T) {
	s := startServer(t, Config{
		Address: "unix:" + filepath.Join(t.TempDir(), "s"),
		Events: func(after uint64) v1.EventList {
			return v1.EventList{Events: []v1.Event{{Number: after + 1}}}
		},
		Metrics: func() []metrics.Sample { return []metrics.Sample{{Name: "weir_x", Value: 7}} },
		Plots:   []history.Plot{{Title: "x", Lines: []history.Source{{Metric: "weir_x", Name: "x"}}}},
	})
	var list v1.EventList
	if code, text := do(t, s, http.MethodGet, "/events?after=4"); code != http.StatusOK || json.Unmarshal([]byte(text), &list) != nil || list.Events[0].Number != 5 {
		t.Errorf("%d %s", code, text)
	}
	if code, text := do(t, s, http.MethodGet, "/events?after=x"); code != http.StatusBadRequest {
		t.Errorf("%d %s", code, text)
	}
	for { // the first point comes at once
		var h v1.History
		code, text := do(t, s, http.MethodGet, "/history")
		if code != http.StatusOK || json.Unmarshal([]byte(text), &h) != nil || len(h.Plots) != 3 {
			t.Fatalf("%d %s", code, text)
		}
		if len(h.Plots[0].Lines) == 0 {
			continue
		}
		if v := h.Plots[0].Lines[0].Values[0]; v == nil || *v != 7 || len(h.Plots[2].Lines) != 1 {
			t.Errorf("%s", text)
		}
		break
	}
}
