package leases

import (
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/kube/pods"
)

// open returns the Leases of an API server that is a function.
func open(t *testing.T, serve http.HandlerFunc) *Leases {
	t.Helper()
	server := httptest.NewTLSServer(serve)
	t.Cleanup(server.Close)
	authority := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := pods.FromEnvironment("coap-0", func(name string) string {
		return map[string]string{"KUBECTL_HOST": server.URL, "KUBECTL_TOKEN": "mine", "KUBECTL_NAMESPACE": "lab", "KUBECTL_TRUSTSTORE": authority}[name]
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := Open(&c, "coap")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func answer(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, text)
}

const refusal = `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": %q, "code": %d, "message": "may not"}`

func lease(name, version, text string) string {
	return fmt.Sprintf(`{"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "metadata": {"name": %q, "namespace": "lab", "resourceVersion": %q, "annotations": {%q: %q}}}`, name, version, entryKey, text)
}

func TestOpenRefuses(t *testing.T) {
	for _, name := range []string{"", "Coap", "a/b", strings.Repeat("a", 64)} {
		if _, err := Open(new(pods.Config), name); err == nil || !strings.Contains(err.Error(), "no name of a cluster") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// What the API server refuses names its remedy; versions that are no numbers are an error.
func TestRefused(t *testing.T) {
	for _, c := range []struct {
		code int
		body string
		want string
	}{
		{403, fmt.Sprintf(refusal, "Forbidden", 403), "Role with get, list, watch, create, patch and delete on leases"},
		{401, fmt.Sprintf(refusal, "Unauthorized", 401), "token of the service account"},
		{200, lease("coap-0-1", "v7", "x"), `resourceVersion "v7" is no number`},
		{200, lease("other-0-1", "7", "x"), "not its name"},
	} {
		l := open(t, func(w http.ResponseWriter, _ *http.Request) { answer(w, c.code, c.body) })
		if _, err := l.Change(t.Context(), "0-1", 3, "x", "node 0"); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "mine") {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}

// A watch whose revision is too old is begun again with a list; one that the server ends goes on from its newest revision.
func TestFollowBeginsAgain(t *testing.T) {
	const items = `{"kind": "LeaseList", "apiVersion": "coordination.k8s.io/v1", "metadata": {"resourceVersion": "%d"}, "items": [%s]}`
	event := func(kind, object string) string {
		return fmt.Sprintf(`{"type": %q, "object": %s}`, kind, object) + "\n"
	}
	var requests []string
	l := open(t, func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		requests = append(requests, query.Get("watch")+query.Get("resourceVersion"))
		switch n := len(requests); {
		case query.Get("labelSelector") != "weir-lb.github.io/cluster=coap":
			t.Errorf("%s", r.URL)
		case n == 1:
			answer(w, 200, fmt.Sprintf(items, 5, lease("coap-0-1", "4", "four")))
		case n == 2:
			answer(w, 200, event("MODIFIED", lease("coap-0-1", "6", "six"))+event("BOOKMARK", lease("", "8", "")))
		case n == 3:
			answer(w, 200, event("ERROR", fmt.Sprintf(refusal, "Expired", 410)))
		case n == 4:
			answer(w, 200, fmt.Sprintf(items, 11, lease("coap-0-1", "10", "ten")))
		case n == 5:
			answer(w, 200, event("DELETED", lease("coap-0-1", "12", "ten")))
		default:
			answer(w, 403, fmt.Sprintf(refusal, "Forbidden", 403))
		}
	})
	var all []Lease
	err := l.Follow(t.Context(), func(c Lease) error {
		all = append(all, c)
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "Role with") {
		t.Error(err)
	}
	if want := []string{"", "true5", "true8", "", "true11", "true12"}; !slices.Equal(requests, want) {
		t.Errorf("requests %q, want %q", requests, want)
	}
	if want := []Lease{{"0-1", 4, "four", false}, {"0-1", 6, "six", false}, {"0-1", 10, "ten", false}, {"0-1", 12, "", true}}; !slices.Equal(all, want) {
		t.Errorf("%+v, want %+v", all, want)
	}
	stop := errors.New("no more")
	l = open(t, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 200, fmt.Sprintf(items, 5, lease("coap-0-1", "4", "four")))
	})
	if err := l.Follow(t.Context(), func(Lease) error { return stop }); !errors.Is(err, stop) {
		t.Error(err)
	}
}
