package clitest

import (
	_ "embed"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"
)

// BrowserCall is what the page of a Browser found in one call.
type BrowserCall struct {
	Echo    string // what came back through the data channel
	Packets int    // of audio
	// Of the selected pair, as the caller sees it: the kinds of both candidates, and the protocol between the caller and its TURN server.
	Local, Remote, Protocol string
	Error                   string
}

//go:embed call.html
var callPage []byte

// Browser is headless Chromium with the page call.html, in which two peers call each other.
type Browser struct {
	t       *testing.T
	served  string // URL of the page
	results chan BrowserCall
	next    chan string // URLs of the page, one for each call
	ended   chan error
	output  *LockedBuffer
	start   func(*exec.Cmd) error
	options []string
	close   func() // nil: it was not started
}

// NewBrowser serves the page at a listener, until the test ends. start starts Chromium where it reaches the listener.
func NewBrowser(t *testing.T, listener net.Listener, start func(*exec.Cmd) error, options ...string) *Browser {
	b := &Browser{
		t: t, served: "http://" + listener.Addr().String() + "/", results: make(chan BrowserCall, 1), next: make(chan string, 1), ended: make(chan error, 1), output: new(LockedBuffer),
		start: start, options: options,
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			_, _ = w.Write(callPage)
			return
		}
		var call BrowserCall
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(body, &call)
		}
		if err != nil {
			call.Error = err.Error()
		}
		b.results <- call
		select {
		case next := <-b.next: // the page goes there
			_, _ = io.WriteString(w, next)
		case <-r.Context().Done():
		}
	})}
	go func() { _ = server.Serve(listener) }() // until it is closed
	t.Cleanup(func() { _ = server.Close() })
	return b
}

// Call makes a call with the parameters of the page.
func (b *Browser) Call(parameters url.Values) BrowserCall {
	b.t.Helper()
	page := b.served + "?" + parameters.Encode()
	if b.close != nil {
		b.next <- page
	} else {
		b.open(page)
	}
	select {
	case call := <-b.results:
		return call
	case err := <-b.ended:
		b.t.Fatalf("chromium ended: %v\n%s", err, b.output)
	case <-time.After(2 * time.Minute):
		b.t.Fatalf("no result from chromium in two minutes:\n%s", b.output)
	}
	return BrowserCall{}
}

// open starts the browser, without a window, until the test ends.
func (b *Browser) open(page string) {
	b.t.Helper()
	profile, err := os.MkdirTemp("", "chromium") // t.TempDir is removed while its last helpers may still write
	Must(b.t, err)
	args := []string{
		"--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-quic", "--autoplay-policy=no-user-gesture-required", "--user-data-dir=" + profile,
	}
	browser := exec.Command("chromium", append(append(args, b.options...), page)...)
	browser.Stdout, browser.Stderr = b.output, b.output
	browser.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	Must(b.t, b.start(browser))
	gone := make(chan struct{})
	go func() {
		b.ended <- browser.Wait()
		close(gone)
	}()
	b.close = sync.OnceFunc(func() {
		_ = syscall.Kill(-browser.Process.Pid, syscall.SIGKILL) // with its helpers, which are of its group
		<-gone
		_ = os.RemoveAll(profile)
	})
	b.t.Cleanup(b.close)
}

// Close ends the browser, which the end of the test does too.
func (b *Browser) Close() { b.close() }
