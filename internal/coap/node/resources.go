package node

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/coap/resource"
)

// contextFormats and the other words of /.well-known/core are attributes of links.
const contextFormats = "0 50 41 60"

// titled are the attributes of a resource with content formats and a title.
func titled(formats, title string) []resource.Attribute {
	return []resource.Attribute{{Name: "ct", Value: formats}, {Name: "title", Value: title}}
}

// newTree builds the resources of a listener. The set is closed.
func (l *listener) newTree() *resource.Tree {
	t := resource.NewTree()
	t.Add("/", &resource.Resource{Hidden: true, Get: l.serveRoot})
	t.Add("/context", &resource.Resource{Attributes: titled(contextFormats, "how the server sees you, as Californium 2.5"), Get: l.serveContext})
	t.Add("/mycontext", &resource.Resource{Attributes: titled(contextFormats, "how the server sees you"), Get: l.serveMyContext})
	t.Add("/myip", &resource.Resource{Attributes: titled("0 50 41", "your address"), Get: serveMyIP})
	t.Add("/separate", &resource.Resource{Attributes: titled("0", "answers separately"), Get: l.serveSeparate})
	benchmark := &resource.Resource{
		Attributes: titled("0", "benchmark: rlen=0..8192, ack"), Get: l.serveBenchmark, Post: l.serveBenchmark, Repeatable: true,
		Topic: &resource.Topic{Every: l.cfg.NotifyInterval, Confirmable: true},
	}
	if !*l.cfg.Benchmark {
		benchmark = &resource.Resource{Hidden: true, Get: noBenchmark, Post: noBenchmark}
	}
	t.Add("/benchmark", benchmark)
	if l.executions != nil {
		t.Add(executionName, &resource.Resource{Hidden: true, Post: l.serveExecution})
	}
	if l.cfg.Diagnose {
		t.Add("/diagnose", &resource.Resource{Attributes: titled("0 50 60", "counters"), Get: l.serveDiagnose, Below: true})
	}
	if l.contexts != nil {
		l.addOSCORE(t)
	}
	if l.extended != nil {
		l.extended.add(t)
	}
	if l.plugtest != nil {
		l.plugtest.add(t)
	}
	return t
}

func (l *listener) serveRoot(r *resource.Request) {
	if _, ok := r.Accepts(message.Text); ok && r.NoQuery() {
		r.Answer(message.Content, message.Text, []byte("Weir "+l.cfg.Version+
			", CoAP and DTLS connection ids.\nResources: /.well-known/core. What you send here is not private."))
	}
}

// Benchmark texts and bounds.
const (
	maxRlen       = 8192
	benchmarkPost = "hello benchmark"
	benchmarkGet  = "hello observe "
)

// benchmarkBody returns the longest body of a benchmark POST; shorter ones are its beginning.
func benchmarkBody() []byte {
	return []byte(benchmarkPost + strings.Repeat("*", maxRlen-len(benchmarkPost)))
}

func noBenchmark(r *resource.Request) {
	r.Error(message.NotImplemented, "benchmark is not supported on this host!")
}

// serveBenchmark answers POST with 2.04 and GET with 2.05. rlen cuts or pads the text with "*", ack requests a separate
// response.
func (l *listener) serveBenchmark(r *resource.Request) {
	length := -1
	for options := r.Message.Options(); options.Next() && options.ID() <= message.URIQuery; {
		if options.ID() != message.URIQuery {
			continue
		}
		query := options.Value()
		switch {
		case string(query) == "ack":
			r.Separate(0)
		case len(query) > 5 && string(query[:5]) == "rlen=":
			n, ok := parseLength(query[5:])
			if !ok {
				r.BadQuery(query, "rlen is 0 to 8192")
				return
			}
			length = n
		default:
			r.BadQuery(query, "rlen=0..8192 and ack are")
			return
		}
	}
	if _, ok := r.Accepts(message.Text); !ok {
		return
	}
	if r.Message.Code == message.POST {
		if length < 0 {
			length = len(benchmarkPost)
		}
		r.Answer(message.Changed, message.Text, l.benchmark[:length])
		return
	}
	text := strconv.AppendInt([]byte(benchmarkGet), int64(r.Now/l.cfg.NotifyInterval), 10)
	if length >= 0 {
		for len(text) < length {
			text = append(text, '*')
		}
		text = text[:length]
	}
	r.Answer(message.Content, message.Text, text)
}

// parseLength reads a decimal number of at most maxRlen.
func parseLength(digits []byte) (n int, ok bool) {
	if len(digits) == 0 || len(digits) > 4 {
		return 0, false
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, n <= maxRlen
}

// describe returns what a request is, one line for each property.
func describe(m *message.Message) []byte {
	text := describeMessage(m)
	if len(m.Token) > 0 {
		text = append(text, "\nToken: "...)
		for _, c := range m.Token {
			text = append(text, "0123456789abcdef"[c>>4], "0123456789abcdef"[c&15])
		}
	}
	return text
}

// describeMessage is describe without the token.
func describeMessage(m *message.Message) []byte {
	text := make([]byte, 0, 96)
	text = append(text, "Type: "...)
	text = strconv.AppendInt(text, int64(m.Type), 10)
	text = append(text, " ("+m.Type.String()+")\nCode: "...)
	text = strconv.AppendInt(text, int64(m.Code), 10)
	text = append(text, " ("+m.Code.Name()+")\nMID: "...)
	return strconv.AppendInt(text, int64(m.ID), 10)
}

// serveSeparate acknowledges at once and answers later with a description of the request.
func (l *listener) serveSeparate(r *resource.Request) {
	if _, ok := r.Accepts(message.Text); !ok || !r.NoQuery() {
		return
	}
	text := describe(r.Message)
	// The text differs for each request, so its blocks would not fit together: where it is too long for one message, the
	// part that is the same for each request is sent.
	short, _, _ := bytes.Cut(text, []byte("\nMID"))
	r.Separate(l.cfg.SeparateDelay)
	r.AnswerWhole(message.Content, message.Text, text, short)
}
