package coaptest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/cli/clitest"
)

// Server is a running `weir coap server`, known by what it logs.
type Server struct {
	t     testing.TB
	Uris  []string // in the order of Addresses: plain, DTLS, cluster nodes
	admin string
	Stop  func() error // interrupts and waits; later calls return nil
}

// Start runs the command line in this process until the test ends. It adds a JSON log and an admin port.
func Start(t testing.TB, listeners int, args ...string) *Server {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	logRead, logWrite := io.Pipe()
	root := clitest.Root()
	root.SetArgs(append([]string{"coap", "server", "--no-supervisor", "--log", "json", "--admin", "127.0.0.1:0", "--admin-token-file", clitest.TokenFile(t)}, args...))
	root.SetErr(logWrite)
	done := make(chan error, 1)
	go func() {
		err := root.ExecuteContext(ctx)
		logWrite.Close()
		done <- err
	}()
	s := &Server{t: t}
	stopped := false
	s.Stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-done
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	lines := bufio.NewScanner(logRead)
	for (len(s.Uris) < listeners || s.admin == "") && lines.Scan() {
		var line struct{ Msg, URI, Address string }
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatalf("log line %q: %v", lines.Text(), err)
		}
		switch line.Msg {
		case "listening":
			s.Uris = append(s.Uris, line.URI)
		case "admin":
			s.admin = line.Address
		}
	}
	if len(s.Uris) < listeners || s.admin == "" {
		t.Fatalf("the server ended: %v", s.Stop())
	}
	go func() { _, _ = io.Copy(io.Discard, logRead) }()
	return s
}

func (s *Server) Get(path string) string {
	s.t.Helper()
	request, err := http.NewRequest(http.MethodGet, "http://"+s.admin+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+clitest.TestToken)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		s.t.Fatalf("%s: %s %v", path, response.Status, err)
	}
	return string(body)
}

// AwaitReady waits until the server is ready, or for long.
func (s *Server) AwaitReady() {
	s.t.Helper()
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		response, err := http.Get("http://" + s.admin + "/readyz")
		if err != nil {
			s.t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode == http.StatusOK {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("not ready: %s\n%s", response.Status, s.Get("/status"))
		}
	}
}

// Metric returns the sum of a metric over all listeners.
func (s *Server) Metric(name string) (sum float64) {
	s.t.Helper()
	found := false
	for line := range strings.Lines(s.Get("/metrics")) {
		if labels, ok := strings.CutPrefix(line, name); ok && strings.IndexAny(labels, "{ ") == 0 {
			var value float64
			if _, err := fmt.Sscan(line[strings.LastIndexByte(line, ' ')+1:], &value); err != nil {
				s.t.Fatalf("metric %q: %v", line, err)
			}
			sum, found = sum+value, true
		}
	}
	if !found {
		s.t.Fatalf("no metric %s", name)
	}
	return sum
}

// Await requests a metric until it has the value, or is more than 0 where that is -1, or for long: the counters of a worker
// that is busy are those of the time before.
func (s *Server) Await(name string, want float64) float64 {
	s.t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if n := s.Metric(name); n == want || want < 0 && n > 0 || time.Now().After(end) {
			return n
		}
	}
}
