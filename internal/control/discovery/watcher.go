package discovery

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/readfile"
)

// Apply puts a configuration in force and returns its number. An error: it is refused as a whole, and the one before stays.
type Apply func(config []byte) (generation uint64, err error)

// Watcher follows the configuration of a node. Its exported fields do not change after the first call.
type Watcher struct {
	Origin    Origin
	Node      string // name of the node this process runs at
	TokenFile string // bearer token, read for each request; empty: none
	CAFile    string // PEM certificates of authorities, read for each connection; empty: those of the system
	StateFile string // the last valid configuration; empty: it is not kept
	Apply     Apply
	Log       *slog.Logger // nil: silent

	// Relay, if not nil, is a server whose nodes get what is followed: Apply gives it to them, and what became of it there is reported in place of
	// what this process does.
	Relay *Server
	// Find, if not nil, says before each connection where the server is, in place of Origin.
	Find func(context.Context) (Origin, error)
	// Certificate, if not nil, is the one (DER) that the server must show, in place of one with its name of an authority.
	Certificate func() ([]byte, error)

	times times
	base  string // URL of the server; written by Run before a connection

	mu     sync.Mutex // guards the rest
	status v1.ConfigSource
	report Report // what the server has to know; its version is empty before the first configuration
}

// times are those of a client; zero means the constants of the protocol.
type times struct{ silence, first, longest time.Duration }

// Check returns what is wrong with the fields, before the first call of another method.
func (w *Watcher) Check() error {
	switch {
	case w.Origin.IsZero() && w.Find == nil || w.Apply == nil:
		return errors.New("no config discovery service")
	case !validNode(w.Node):
		return fmt.Errorf("node %q: %w", shortened(w.Node, 80), errNode)
	}
	err := w.private(w.Origin)
	if err == nil {
		_, err = w.Origin.client(w.CAFile, nil)
	}
	if err == nil {
		_, err = w.token()
	}
	return err
}

// private says whether the token may be sent to a server.
func (w *Watcher) private(o Origin) error {
	if w.TokenFile != "" && !o.IsZero() && !o.private() {
		return fmt.Errorf("the token would be sent to %s without encryption; write https://, or a unix: socket", o)
	}
	return nil
}

// Status is the state of the watch. Any goroutine may call it.
func (w *Watcher) Status() v1.ConfigSource {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.status
	s.Service, s.Node = w.Origin.String(), w.Node
	return s
}

// Restore applies the configuration of the state file. It returns false when there is none, and an error when that cannot be read or
// applied; the process can go on in either case, and waits for the server.
func (w *Watcher) Restore() (bool, error) {
	if w.StateFile == "" {
		return false, nil
	}
	config, err := readState(w.StateFile)
	if config == nil || err != nil {
		return false, err
	}
	generation, err := w.Apply(config)
	if err != nil {
		return false, fmt.Errorf("the last configuration, %s: %w", w.StateFile, err)
	}
	w.inForce(Version(config), generation)
	w.mu.Lock()
	w.status.Restored = true
	w.mu.Unlock()
	return true, nil
}

func (w *Watcher) inForce(version string, generation uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.report = Report{Version: version, Generation: generation}
	w.status.Version, w.status.Refused, w.status.RefusedError, w.status.Restored = version, "", "", false
}

// Run follows the server until ctx ends; then it returns nil. Whatever the server does, it tries again.
func (w *Watcher) Run(ctx context.Context) error {
	log, t := cmp.Or(w.Log, slog.New(slog.DiscardHandler)), w.times
	if t == (times{}) {
		t = times{silenceLimit, firstRetry, longestRetry}
	}
	pause, reported := t.first, ""
	for {
		got, err := w.once(ctx, t.silence, log)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the caller has ended it
		}
		if got {
			pause, reported = t.first, ""
		}
		w.failed(err)
		if text := err.Error(); text != reported { // once, not for each attempt
			reported = text
			log.Warn("no connection to the config discovery service; the last configuration stays in force", "service", w.Origin.String(), "node", w.Node, "error", text)
		}
		timer := time.NewTimer(pause + time.Duration(rand.Int64N(int64(pause)/4+1))) //nolint:gosec // spreads clients, no secret
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
		pause = min(2*pause, t.longest)
	}
}

func (w *Watcher) failed(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.status.Connected, w.status.Error = false, shortened(err.Error(), MaxReason)
	w.status.Failures++
}

// client makes an HTTP client for a connection, to wherever the server is now.
func (w *Watcher) client(ctx context.Context) (c *http.Client, origin Origin, err error) {
	origin = w.Origin
	if w.Find != nil {
		if origin, err = w.Find(ctx); err != nil {
			return nil, origin, err
		}
	}
	if err := w.private(origin); err != nil {
		return nil, origin, err
	}
	w.base = origin.base
	c, err = origin.client(w.CAFile, w.Certificate)
	return c, origin, err
}

// once makes one connection and reads until it ends. got: a line was received.
func (w *Watcher) once(ctx context.Context, silence time.Duration, log *slog.Logger) (got bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := time.AfterFunc(silence, func() { cancel(fmt.Errorf("nothing has arrived for %s", silence)) })
	defer watch.Stop()
	client, origin, err := w.client(ctx)
	if err != nil {
		return false, err
	}
	defer client.CloseIdleConnections()
	w.mu.Lock()
	report := w.report
	applied := report.Version
	if report.Error != "" {
		applied = w.status.Version
	}
	w.mu.Unlock()
	path := configPath
	if w.Relay != nil {
		path = relayPath
	}
	answer, err := w.request(ctx, client, http.MethodGet, path, url.Values{"applied": {applied}}, nil)
	if err != nil {
		return false, because(ctx, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 200))
		return false, fmt.Errorf("the service answers %s: %s", answer.Status, strings.TrimSpace(string(text)))
	}
	w.connected()
	log.Info("connected to the config discovery service", "service", origin.String(), "node", w.Node, "applied", applied)
	if w.Relay != nil {
		var reporting sync.WaitGroup
		defer reporting.Wait()
		defer cancel(nil)
		reporting.Go(func() { cancel(w.reportNodes(ctx, client)) })
	}
	if err := w.send(ctx, client); err != nil {
		return false, because(ctx, err)
	}
	return w.follow(ctx, client, answer.Body, func() { watch.Reset(silence) }, log)
}

// follow reads lines until the connection ends; alive is called after each. got: a line was received.
func (w *Watcher) follow(ctx context.Context, client *http.Client, body io.Reader, alive func(), log *slog.Logger) (got bool, err error) {
	lines := bufio.NewReaderSize(body, 16<<10)
	for {
		text, err := line(lines)
		if err != nil {
			return got, because(ctx, err)
		}
		alive()
		var m message
		if err := json.Unmarshal(text, &m); err != nil {
			return got, fmt.Errorf("the service sent a line that is no configuration: %w", err)
		}
		if m.Version == "" {
			got = true
			continue
		}
		if err := w.received(&m, log); err != nil {
			return got, err
		}
		got = true
		if err := w.send(ctx, client); err != nil {
			return got, because(ctx, err)
		}
		alive()
	}
}

// because is why a request or a read ended.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	if errors.Is(err, io.EOF) {
		return errors.New("the service ended the connection")
	}
	return err
}

func (w *Watcher) connected() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.status.Connected, w.status.Error = true, ""
	w.status.Connects++
}

// line reads one line of bounded length.
func line(r *bufio.Reader) ([]byte, error) {
	var all []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(all)+len(part) > maxLine {
			return nil, fmt.Errorf("the service sent a line of more than %d bytes", maxLine)
		}
		all = append(all, part...)
		if err == nil {
			return bytes.TrimSpace(all), nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
	}
}

// received puts a configuration in force, keeps it, and notes what became of it. An error: it is not what its version says.
func (w *Watcher) received(m *message, log *slog.Logger) error {
	config := []byte(m.Config)
	switch {
	case len(config) > MaxConfig:
		return fmt.Errorf("the service sent a configuration of %d bytes, %w", len(config), errTooLong)
	case Version(config) != m.Version:
		return fmt.Errorf("the service sent a configuration that is not its version %s", shortened(m.Version, 40))
	}
	w.mu.Lock()
	known := w.report.Version == m.Version && w.report.Error == ""
	w.status.Received++
	w.mu.Unlock()
	if known {
		return nil // reported already, and to be reported again
	}
	generation, err := w.Apply(config)
	if err != nil {
		log.Error("configuration refused, the last good one stays", "version", m.Version, "error", err)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.report = Report{Version: m.Version, Error: shortened(err.Error(), MaxReason)}
		w.status.Refused, w.status.RefusedError = m.Version, w.report.Error
		return nil
	}
	w.inForce(m.Version, generation)
	if w.StateFile != "" {
		err = writeState(w.StateFile, config)
		w.mu.Lock()
		w.status.StateError = ""
		if err != nil {
			w.status.StateError = err.Error()
		}
		w.mu.Unlock()
		if err != nil {
			log.Error("the configuration is in force, but a restart will not find it", "error", err)
		}
	}
	return nil
}

// send reports what became of the newest configuration, if there is one.
func (w *Watcher) send(ctx context.Context, client *http.Client) error {
	w.mu.Lock()
	report := w.report
	w.mu.Unlock()
	if report.Version == "" || w.Relay != nil {
		return nil
	}
	body, err := json.Marshal(report)
	if err != nil {
		return err
	}
	return w.post(ctx, client, appliedPath, body)
}

func (w *Watcher) post(ctx context.Context, client *http.Client, path string, body []byte) error {
	answer, err := w.request(ctx, client, http.MethodPost, path, nil, body)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusNoContent {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 200))
		return fmt.Errorf("the service answers a report with %s: %s", answer.Status, strings.TrimSpace(string(text)))
	}
	return nil
}

func (w *Watcher) request(ctx context.Context, client *http.Client, method, path string, query url.Values, body []byte) (*http.Response, error) {
	if query == nil {
		query = url.Values{}
	}
	query.Set("node", w.Node)
	r, err := http.NewRequestWithContext(ctx, method, w.base+path+"?"+query.Encode(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	token, err := w.token()
	if err != nil {
		return nil, err
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return client.Do(r)
}

// maxToken bounds a token; those of service accounts have about 1,000 bytes.
const maxToken = 16 << 10

func (w *Watcher) token() (string, error) {
	if w.TokenFile == "" {
		return "", nil
	}
	text, err := readfile.Read(w.TokenFile, maxToken)
	if err != nil {
		return "", fmt.Errorf("token of the config discovery service: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("%s: no token; write one line of printable characters", w.TokenFile)
	}
	return token, nil
}
