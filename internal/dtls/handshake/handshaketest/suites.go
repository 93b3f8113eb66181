package handshaketest

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weir-lb/weir/internal/dtls/record"
)

// Suites collects the cipher suites of the sessions that a test makes with another program, and compares them at its end with the
// page that says with which program which suite is tested.
type Suites struct {
	t          testing.TB
	peer, role string
	scope      func(record.Suite) bool
	mu         sync.Mutex
	made       map[string]bool // guarded by mu
}

// SuitesOfPage begins to collect for a column of docs/coap-suites.md. role is that of the peer, "client" or "server"; scope are the suites
// that this test is about, nil: all.
func SuitesOfPage(t testing.TB, peer, role string, scope func(record.Suite) bool) *Suites {
	t.Helper()
	s := &Suites{t: t, peer: peer, role: role, scope: scope, made: map[string]bool{}}
	t.Cleanup(s.compare)
	return s
}

// Made notes that a session was made with a suite. Safe from parallel tests.
func (s *Suites) Made(suite string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made[suite] = true
}

func (s *Suites) compare() {
	if run := flag.Lookup("test.run"); s.t.Failed() || s.t.Skipped() || run != nil && strings.Contains(run.Value.String(), "/") {
		return // it has not made all
	}
	page := s.column()
	for _, suite := range record.Suites() {
		if s.scope != nil && !s.scope(suite) {
			continue
		}
		cell := page[suite.String()]
		if listed := cell == "both" || cell == s.role; listed != s.made[suite.String()] {
			s.t.Errorf("docs/coap-suites.md has %q for %s with %s; this test has made such a session with its %s: %t", cell, suite, s.peer, s.role, !listed)
		}
	}
}

// column reads the cells of the peer, by suite.
func (s *Suites) column() map[string]string {
	text, err := os.ReadFile(filepath.Join(moduleRoot(s.t), "docs", "coap-suites.md"))
	if err != nil {
		s.t.Fatal(err)
	}
	column := -1
	page := map[string]string{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.Trim(cells[i], " `")
		}
		if cells[0] == "suite" {
			column = slices.Index(cells, s.peer)
		} else if column >= 0 && column < len(cells) {
			page[cells[0]] = cells[column]
		}
	}
	if column < 0 {
		s.t.Fatalf("docs/coap-suites.md has no column %q", s.peer)
	}
	return page
}

// moduleRoot is the folder with go.mod, above that of the test.
func moduleRoot(t testing.TB) string {
	t.Helper()
	folder, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			return folder
		}
		if folder == filepath.Dir(folder) {
			t.Fatal("no go.mod above the test")
		}
		folder = filepath.Dir(folder)
	}
}
