package clitest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Page is a headless Chromium with one page, driven through its DevTools protocol over a pipe: it listens nowhere.
type Page struct {
	t       *testing.T
	in      *os.File
	out     *LockedBuffer
	session string

	mu      sync.Mutex
	calls   int
	waiting map[int]chan devtoolsMessage
	gone    bool
	notes   []string // what the page's console, its exceptions and the browser's log say
}

type devtoolsMessage struct {
	ID     int             `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// OpenPage starts one that shows nothing until the test ends.
func OpenPage(t *testing.T) *Page {
	t.Helper()
	theirIn, in, err := os.Pipe()
	Must(t, err)
	out, theirOut, err := os.Pipe()
	Must(t, err)
	profile, err := os.MkdirTemp("", "chromium") // t.TempDir is removed while its last helpers may still write
	Must(t, err)
	b := &Page{t: t, in: in, out: new(LockedBuffer), waiting: map[int]chan devtoolsMessage{}}
	cmd := exec.Command("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-quic", "--force-color-profile=srgb", "--remote-debugging-pipe", "--user-data-dir="+profile)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = b.out, b.out, []*os.File{theirIn, theirOut} // the protocol's 3 and 4
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	Must(t, cmd.Start())
	theirIn.Close()
	theirOut.Close()
	read := make(chan struct{})
	go func() {
		defer close(read)
		b.follow(bufio.NewReader(out))
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // with its helpers, which are of its group
		_ = cmd.Wait()
		in.Close()
		out.Close()
		<-read
		_ = os.RemoveAll(profile)
	})
	var target struct{ TargetID string }
	b.Call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.Call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Accessibility"} {
		b.Call(domain+".enable", nil, nil)
	}
	return b
}

func (b *Page) follow(from *bufio.Reader) {
	for {
		text, err := from.ReadBytes(0)
		var m devtoolsMessage
		if err == nil {
			err = json.Unmarshal(bytes.TrimSuffix(text, []byte{0}), &m)
		}
		b.mu.Lock()
		switch answer := b.waiting[m.ID]; {
		case err != nil:
			b.gone = true
			for _, answer := range b.waiting {
				close(answer)
			}
		case answer != nil:
			delete(b.waiting, m.ID)
			answer <- m
		case m.Method == "Log.entryAdded" || m.Method == "Runtime.exceptionThrown" || m.Method == "Runtime.consoleAPICalled":
			b.notes = append(b.notes, m.Method+" "+string(m.Params))
		}
		b.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// Call has the browser do something and decodes its result, unless that is nil.
func (b *Page) Call(method string, params map[string]any, result any) {
	b.t.Helper()
	answer := make(chan devtoolsMessage, 1)
	b.mu.Lock()
	b.calls++
	command := map[string]any{"id": b.calls, "method": method, "params": params}
	if params == nil {
		delete(command, "params")
	}
	if b.session != "" {
		command["sessionId"] = b.session
	}
	if b.waiting[b.calls] = answer; b.gone {
		close(answer)
	}
	b.mu.Unlock()
	text, err := json.Marshal(command)
	Must(b.t, err)
	_, _ = b.in.Write(append(text, 0)) // where it has ended, no answer comes
	select {
	case m, open := <-answer:
		switch {
		case !open:
			b.t.Fatalf("%s: chromium has ended\n%s", method, b.out)
		case m.Error != nil:
			b.t.Fatalf("%s: %s", method, m.Error.Message)
		case result != nil:
			Must(b.t, json.Unmarshal(m.Result, result))
		}
	case <-time.After(2 * time.Minute):
		b.t.Fatalf("%s: no answer in two minutes\n%s", method, b.out)
	}
}

// Evaluate runs an expression in the page, a promise to its end, and decodes its value.
func (b *Page) Evaluate(expression string, value any) {
	b.t.Helper()
	var result struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	b.Call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &result)
	if result.ExceptionDetails != nil {
		b.t.Fatalf("%s: %s", expression, result.ExceptionDetails)
	}
	if value != nil {
		Must(b.t, json.Unmarshal(result.Result.Value, value))
	}
}

// Await returns once an expression is true.
func (b *Page) Await(expression string) {
	b.t.Helper()
	for deadline := time.Now().Add(90 * time.Second); ; time.Sleep(30 * time.Millisecond) {
		is := false
		b.Evaluate("Boolean("+expression+")", &is)
		if is {
			return
		}
		if time.Now().After(deadline) {
			var text string
			b.Evaluate("document.body.innerText", &text)
			b.t.Fatalf("never true: %s\nthe page says:\n%s", expression, text)
		}
	}
}

// Open loads a page; what violates its content policy is kept in violations from the start.
func (b *Page) Open(address string) {
	b.t.Helper()
	b.Call("Page.addScriptToEvaluateOnNewDocument", map[string]any{"source": `window.violations = [];
		addEventListener("securitypolicyviolation", (e) => violations.push(e.violatedDirective + " " + e.blockedURI))`}, nil)
	b.Call("Page.navigate", map[string]any{"url": address}, nil)
	landing, _, _ := strings.Cut(address, "?") // a token there is taken, and not left in the address
	b.Await(fmt.Sprintf("document.readyState === 'complete' && location.href === %q", landing))
}

// Press types a key: a name such as Tab or Enter, or a character.
func (b *Page) Press(key string) {
	b.t.Helper()
	codes := map[string]int{"Tab": 9, "Enter": 13, "ArrowLeft": 37, "Home": 36, "End": 35, "Escape": 27}
	down := map[string]any{"type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
	switch {
	case key == "Enter":
		down["text"] = "\r"
	case len(key) == 1:
		down["text"] = key
	}
	b.Call("Input.dispatchKeyEvent", down, nil)
	b.Call("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": key, "code": key, "windowsVirtualKeyCode": codes[key]}, nil)
}

// Look sets the width, and light or dark.
func (b *Page) Look(width int, scheme string) {
	b.t.Helper()
	b.Call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false}, nil)
	b.Call("Emulation.setScrollbarsHidden", map[string]any{"hidden": true}, nil)
	b.Call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
	b.Evaluate("new Promise((ok) => requestAnimationFrame(() => requestAnimationFrame(() => ok(true))))", nil)
}

// Shot writes a picture of the whole page into the folder that WEIR_SCREENSHOTS names; without one it does nothing.
func (b *Page) Shot(name string) {
	b.t.Helper()
	folder := os.Getenv("WEIR_SCREENSHOTS")
	if folder == "" {
		return
	}
	var picture struct{ Data []byte }
	b.Call("Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": true}, &picture)
	Must(b.t, os.WriteFile(folder+"/"+name+".png", picture.Data, 0o644))
}

// Notes are the notes so far.
func (b *Page) Notes() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.notes...)
}
