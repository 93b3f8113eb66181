package web_test

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/weir-lb/weir/web"
)

// Everything that the pages and their scripts name is in the binary, and nothing comes from elsewhere.
func TestPagesAreWhole(t *testing.T) {
	for name, handler := range map[string]http.Handler{"part": web.Handler(), "tcp stats": web.TCPStats()} {
		t.Run(name, func(t *testing.T) { checkPage(t, handler) })
	}
}

func checkPage(t *testing.T, handler http.Handler) {
	t.Helper()
	get := func(path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w
	}
	page := get("/")
	if page.Code != http.StatusOK || !strings.HasPrefix(page.Header().Get("Content-Type"), "text/html") {
		t.Fatal(page.Code, page.Header())
	}
	if policy := page.Header().Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
		t.Errorf("policy %q", policy)
	}
	named := regexp.MustCompile(`(?:src|href)="([^"#]+)"`)
	imported := regexp.MustCompile(`from "\./([^"]+)"`)
	files, left := map[string]bool{}, []string{"/"}
	for ; len(left) > 0; left = left[1:] {
		body := get(left[0]).Body.String()
		if strings.Contains(strings.ReplaceAll(body, "http://www.w3.org/2000/svg", ""), "://") {
			t.Errorf("%s names another host", left[0])
		}
		for _, m := range append(named.FindAllStringSubmatch(body, -1), imported.FindAllStringSubmatch(body, -1)...) {
			switch file := m[1]; {
			case file == "data:," || file == "metrics" || file == "status" || file == "routes" || strings.HasPrefix(file, "api/") || files[file]: // the process's own
			case get("/"+file).Code != http.StatusOK:
				t.Errorf("%s names %s: %d", left[0], file, get("/"+file).Code)
			default:
				files[file] = true
				left = append(left, "/"+file)
			}
		}
	}
	if len(files) < 5 || !files["style.css"] || !files["table.js"] {
		t.Errorf("the page has only %v", files)
	}
	if get("/web.go").Code != http.StatusNotFound {
		t.Error("serves its source")
	}
}
