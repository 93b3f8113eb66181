package web_test

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/weir-lb/weir/web"
)

// Everything that the page names is in the binary, and nothing comes from elsewhere.
func TestTCPStatsPageIsWhole(t *testing.T) {
	get := func(path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		web.TCPStats().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w
	}
	page := get("/")
	if policy := page.Header().Get("Content-Security-Policy"); page.Code != http.StatusOK || !strings.Contains(policy, "default-src 'none'") {
		t.Fatal(page.Code, policy)
	}
	files := 0
	for _, m := range regexp.MustCompile(`(?:src|href)="([^"]+)"`).FindAllStringSubmatch(page.Body.String(), -1) {
		if m[1] == "data:," || m[1] == "metrics" || strings.HasPrefix(m[1], "api/") || strings.HasPrefix(m[1], "#") {
			continue // the service's own
		}
		files++
		file := get("/" + m[1])
		if file.Code != http.StatusOK {
			t.Errorf("%s: %d", m[1], file.Code)
		}
		if regexp.MustCompile(`https?://`).MatchString(strings.ReplaceAll(file.Body.String(), "http://www.w3.org/2000/svg", "")) {
			t.Errorf("%s names another host", m[1])
		}
	}
	if files != 4 || strings.Contains(page.Body.String(), "://") {
		t.Errorf("%d files named by the page", files)
	}
}
