package pods

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

const (
	refusal = `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403, "message": "may not"}`
	list    = `{"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "%d"}, "items": [
		{"metadata": {"name": "coap-0", "namespace": "default", "resourceVersion": "1"}, "status": {"podIP": "10.0.0.1", "phase": "Running"}},
		{"metadata": {"name": "coap-1", "namespace": "default", "resourceVersion": "1"}, "status": {"podIP": "10.0.0.2", "phase": "Running"}}]}`
)

// lineWriter passes on what is logged.
type lineWriter chan string

func (w lineWriter) Write(p []byte) (int, error) {
	w <- string(bytes.Clone(p))
	return len(p), nil
}

// A server that refuses everything is reported once, with the remedy, however often it is tried. When the list is permitted, Pods are known,
// also where watching them is not.
func TestFollowRefused(t *testing.T) {
	var permitted atomic.Bool
	var requests atomic.Int64
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := requests.Add(1)
		w.Header().Set("Content-Type", "application/json")
		if r.Header.Get("Authorization") != "Bearer mine" || r.URL.Path != "/api/v1/namespaces/default/pods" || r.URL.Query().Get("labelSelector") != "app=coap" {
			t.Errorf("%s", r.URL)
		}
		if !permitted.Load() || r.URL.Query().Get("watch") != "" {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, refusal)
			permitted.Store(permitted.Load() || n > 4)
			return
		}
		fmt.Fprintf(w, list, n)
	}))
	defer server.Close()
	authority := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := fromEnvironment("coap-0", variables(map[string]string{
		"KUBECTL_HOST": server.URL, "KUBECTL_TOKEN": "mine", "KUBECTL_SELECTOR": "app%3Dcoap", "KUBECTL_TRUSTSTORE": authority,
	}), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	lines := make(lineWriter, 100)
	c.Log = slog.New(slog.NewTextHandler(lines, nil))
	ctx, cancel := context.WithCancel(t.Context())
	known := make(chan []Pod, 1)
	ended := make(chan error)
	go func() { ended <- Follow(ctx, c, func(found []Pod) { known <- found }) }()
	if found := <-known; len(found) != 1 || found[0].Name != "coap-1" || found[0].Addresses[0].String() != "10.0.0.2" {
		t.Errorf("%+v", found)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	close(lines)
	var all strings.Builder
	for line := range lines {
		all.WriteString(line)
	}
	if warnings := strings.Count(all.String(), "level=WARN"); warnings != 1 || !strings.Contains(all.String(), "Role with get, list and watch") || strings.Contains(all.String(), "mine") {
		t.Errorf("%d warnings:\n%s", warnings, &all)
	}
}
