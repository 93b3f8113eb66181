package web_test

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/weir-lb/weir/web"
)

func get(t *testing.T, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	web.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

// Everything that the page names must be in the binary, and nothing may come from elsewhere.
func TestPageIsWhole(t *testing.T) {
	page := get(t, "/")
	if page.Code != http.StatusOK || !strings.HasPrefix(page.Header().Get("Content-Type"), "text/html") {
		t.Fatal(page.Code, page.Header())
	}
	if policy := page.Header().Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") {
		t.Errorf("policy %q", policy)
	}
	named := regexp.MustCompile(`(?:src|href)="([^"]+)"`).FindAllStringSubmatch(page.Body.String(), -1)
	if len(named) < 4 {
		t.Fatalf("only %d addresses on the page", len(named))
	}
	for _, m := range named {
		switch m[1] {
		case "data:,", "metrics", "status": // the admin API's own
		default:
			if got := get(t, "/"+m[1]); got.Code != http.StatusOK {
				t.Errorf("%s: %d", m[1], got.Code)
			}
		}
	}
	for _, file := range []string{"/", "/app.js", "/users.js", "/style.css"} {
		if regexp.MustCompile(`https?://`).MatchString(strings.ReplaceAll(get(t, file).Body.String(), "http://www.w3.org/2000/svg", "")) {
			t.Errorf("%s names another host", file)
		}
	}
	if get(t, "/web.go").Code != http.StatusNotFound {
		t.Error("serves its source")
	}
}
