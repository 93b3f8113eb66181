package browse

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/charmbracelet/bubbles/textarea"
	"github.com/charmbracelet/bubbles/viewport"
	tea "github.com/charmbracelet/bubbletea"
	"golang.org/x/term"

	"github.com/weir-lb/weir/internal/coap/client"
	"github.com/weir-lb/weir/internal/coap/message"
)

// maxLog bounds the lines of the log that are kept.
const maxLog = 200

// mode is what the keys mean now.
type mode uint8

const (
	choosing mode = iota
	filtering
	editing
	deleting // asks
	helping
)

// model is the state of the browser; bubbletea alone calls its methods, from one goroutine.
type model struct {
	ctx    context.Context
	uri    string
	cfg    client.DialConfig
	events chan tea.Msg // of observations

	conn          *client.Conn
	links         []client.Link
	filter        string
	cursor        int
	mode          mode
	width, height int
	title         string // of the content
	content       viewport.Model
	body          string // of the content, unwrapped
	area          textarea.Model
	observed      map[string]context.CancelFunc // by target
	log           []string
	raw           []byte // payload of the content
	hex           bool
}

type (
	dialled  struct{ conn *client.Conn }
	listed   struct{ links []client.Link }
	answered struct {
		method message.Code
		target string
		x      *client.Exchange
	}
	failed struct {
		what string
		err  error
	}
	notified struct {
		target string
		n      client.Notification
	}
	unobserved struct {
		target string
		err    error
	}
	edited struct {
		target string
		text   []byte
		err    error
	}
)

// ErrNoTerminal is returned where standard input or output is no terminal.
var ErrNoTerminal = errors.New("weir coap browse needs a terminal; use weir coap discover and weir coap get elsewhere")

// Run shows the browser on the terminal until the user quits or ctx ends.
func Run(ctx context.Context, uri string, cfg client.DialConfig) error {
	width, height, err := term.GetSize(int(os.Stdout.Fd()))
	if err != nil || !term.IsTerminal(int(os.Stdin.Fd())) {
		return ErrNoTerminal
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m := newModel(ctx, uri, cfg)
	if width > 0 && height > 0 { // 0: the terminal does not know
		m.width, m.height = width, height
		m.layout()
	}
	last, err := tea.NewProgram(m, tea.WithAltScreen(), tea.WithContext(ctx)).Run()
	cancel()
	if end, ok := last.(*model); ok && end.conn != nil {
		end.conn.Close() //nolint:errcheck // nothing is lost
	}
	if errors.Is(err, tea.ErrInterrupted) || errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil {
		return nil
	}
	return err
}

func newModel(ctx context.Context, uri string, cfg client.DialConfig) *model {
	m := &model{ctx: ctx, uri: uri, cfg: cfg, events: make(chan tea.Msg, 16), observed: map[string]context.CancelFunc{}, width: 80, height: 24}
	m.area = textarea.New()
	m.area.CharLimit = 1 << 16
	m.show("", "connecting to "+uri)
	return m
}

// Init connects.
func (m *model) Init() tea.Cmd {
	return tea.Batch(func() tea.Msg {
		conn, err := client.Dial(m.ctx, m.uri, m.cfg)
		if err != nil {
			return failed{"connect", err}
		}
		return dialled{conn}
	}, m.nextEvent)
}

func (m *model) nextEvent() tea.Msg {
	select {
	case e := <-m.events:
		return e
	case <-m.ctx.Done():
		return nil
	}
}

// Update handles one event.
func (m *model) Update(event tea.Msg) (tea.Model, tea.Cmd) {
	switch e := event.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = e.Width, e.Height
		m.layout()
	case tea.KeyMsg:
		return m, m.key(e)
	case dialled:
		m.conn = e.conn
		m.show("", "")
		m.logf("connected, %s", session(e.conn.Session()))
		return m, m.discover()
	case listed:
		m.links = e.links
		m.cursor = min(m.cursor, max(0, len(m.visible())-1))
		m.logf("%d resources", len(e.links))
	case answered:
		m.shown(e.method, e.target, e.x)
	case notified:
		m.shown(message.Empty, e.target, e.n.Exchange)
		return m, m.nextEvent
	case unobserved:
		delete(m.observed, e.target)
		m.logf("ended %s%s", e.target, because(e.err))
		return m, m.nextEvent
	case edited:
		if e.err != nil {
			m.logf("editor: %v", e.err)
			return m, nil
		}
		return m, m.request(message.PUT, e.target, e.text)
	case failed:
		m.logf("%s: %v", e.what, e.err)
		if m.conn == nil {
			m.show("", fmt.Sprintf("%s: %v\n\npress q to quit", e.what, e.err))
		}
	default:
		if m.mode == editing {
			var cmd tea.Cmd
			m.area, cmd = m.area.Update(event)
			return m, cmd
		}
	}
	return m, nil
}

func because(err error) string {
	if err == nil || errors.Is(err, context.Canceled) {
		return ""
	}
	return ": " + err.Error()
}

// split is the path and the query of a link's target.
func split(target string) client.Request {
	var r client.Request
	path, query, _ := strings.Cut(target, "?")
	r.Path = []string{}
	for _, segment := range strings.Split(strings.Trim(path, "/"), "/") {
		if text, err := url.PathUnescape(segment); err == nil && segment != "" {
			r.Path = append(r.Path, text)
		}
	}
	r.Query = []string{}
	for _, part := range strings.Split(query, "&") {
		if text, err := url.PathUnescape(part); err == nil && part != "" {
			r.Query = append(r.Query, text)
		}
	}
	return r
}

func (m *model) request(method message.Code, target string, payload []byte) tea.Cmd {
	conn := m.conn
	if conn == nil {
		return nil
	}
	r := split(target)
	r.Method, r.Payload = method, payload
	if payload != nil {
		r.Options = []client.Option{client.UintOption(message.ContentFormat, 0)}
	}
	return func() tea.Msg {
		x, err := conn.Do(m.ctx, &r)
		if err != nil {
			return failed{method.Name() + " " + target, err}
		}
		return answered{method, target, x}
	}
}

func (m *model) discover() tea.Cmd {
	conn := m.conn
	if conn == nil {
		return nil
	}
	return func() tea.Msg {
		const what = "GET /.well-known/core"
		x, err := conn.Do(m.ctx, &client.Request{Path: []string{".well-known", "core"}, Query: []string{}})
		if err != nil {
			return failed{what, err}
		}
		var response message.Message
		if err := message.Parse(x.Response, &response); err != nil {
			return failed{what, err}
		}
		if response.Code != message.Content {
			return failed{what, fmt.Errorf("%s %s", response.Code, response.Code.Name())}
		}
		links, err := client.ParseLinks(string(response.Payload))
		if err != nil {
			return failed{what, err}
		}
		return listed{links}
	}
}

// observe registers for a resource, or ends its observation.
func (m *model) observe(target string) tea.Cmd {
	if cancel, is := m.observed[target]; is {
		cancel()
		return nil
	}
	conn := m.conn
	if conn == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(m.ctx)
	m.observed[target] = cancel
	return func() tea.Msg {
		err := conn.Observe(ctx, client.ObserveConfig{Request: split(target)}, func(n client.Notification) bool { return m.send(notified{target, n}) })
		m.send(unobserved{target, err})
		return nil
	}
}

// send hands an event of an observation over; false: the browser ends.
func (m *model) send(event tea.Msg) bool {
	select {
	case m.events <- event:
		return true
	case <-m.ctx.Done():
		return false
	}
}

func (m *model) logf(format string, args ...any) {
	line := time.Now().Format("15:04:05 ") + client.Printable(fmt.Sprintf(format, args...))
	if m.log = append(m.log, line); len(m.log) > maxLog {
		m.log = m.log[len(m.log)-maxLog:]
	}
}

// shown logs an exchange and shows its response.
func (m *model) shown(method message.Code, target string, x *client.Exchange) {
	name := "notified"
	if method != message.Empty {
		name = method.Name()
	}
	var response message.Message
	if err := message.Parse(x.Response, &response); err != nil {
		m.logf("%s %s: %v", name, target, err)
		return
	}
	m.logf("%s %s %s, %s%d bytes, %s", name, target, response.Code, took(x.RTT), len(response.Payload), messages(x))
	m.raw = append([]byte(nil), response.Payload...)
	m.show(fmt.Sprintf("%s  %s %s", client.Printable(target), response.Code, response.Code.Name()), client.Rendered(&response))
}

// took is the time of an exchange, for a line of the log; a notification has none.
func took(rtt time.Duration) string {
	if rtt == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f ms, ", float64(rtt)/1e6)
}

// messages says how many requests it took: more than one for blocks.
func messages(x *client.Exchange) string {
	text := "1 message"
	if x.Messages != 1 {
		text = fmt.Sprintf("%d messages", x.Messages)
	}
	if x.Retransmissions > 0 {
		text += fmt.Sprintf(", %d sent again", x.Retransmissions)
	}
	return text
}

func (m *model) show(title, body string) {
	m.title, m.body = title, body
	m.layout()
	m.content.GotoTop()
}

// session is what the log says about a connection.
func session(s client.Session) string {
	if s.Suite == "" {
		return "no encryption"
	}
	cids := "no connection ids"
	if s.HasCID {
		cids = fmt.Sprintf("own CID %s, peer's %s", cidText(s.ReadCID), cidText(s.WriteCID))
	}
	return fmt.Sprintf("%s, %s, %s", cids, s.Suite, s.Identity)
}

func cidText(hex string) string {
	if hex == "" {
		return "empty"
	}
	return hex
}
