package node

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/coap/resource"
)

// plugtest holds what clients change in the resources of Californium's plugtest server. The listeners of a Node share it; its
// methods run on any worker.
type plugtest struct {
	clock func() time.Time // wall time, of /obs and its siblings
	every time.Duration    // period of /obs and its siblings

	mu      sync.Mutex // guards what follows
	large   stored     // /large-update
	valid   stored     // /validate
	created [3]stored  // /create1 to /create3
	obs     [2]stored  // /obs and /obs-non
	changed [2]time.Time
	bodies  []child // of /large-create, oldest first
	number  int     // of the newest child

	topics []*resource.Topic // of /obs and its siblings

	shutdown chan struct{} // takes a request to end the Node; nil: refused
}

// stored is a representation that a client has put.
type stored struct {
	body   []byte
	format message.Format
	exists bool
}

func newPlugtest(clock func() time.Time, every time.Duration) *plugtest {
	return &plugtest{clock: clock, every: every, large: stored{[]byte(largeText()), message.Text, true}}
}

func attributes(pairs ...string) (all []resource.Attribute) {
	for i := 0; i+1 < len(pairs); i += 2 {
		all = append(all, resource.Attribute{Name: pairs[i], Value: pairs[i+1]})
	}
	return all
}

// add adds the resources to a listener's tree.
func (p *plugtest) add(t *resource.Tree) {
	ct := attributes("ct", "0")
	t.Add("/test", &resource.Resource{Attributes: ct, Get: serveTest, Put: done(message.Changed), Delete: done(message.Deleted), Post: func(r *resource.Request) {
		r.Location([]string{"location1", "location2", "location3"}, nil)
		r.Done(message.Created)
	}})
	t.Add("/location-query", &resource.Resource{Post: func(r *resource.Request) {
		r.Location(nil, []string{"first=1", "second=2"})
		r.Done(message.Created)
	}})
	for _, path := range []string{"/seg1", "/seg1/seg2", "/seg1/seg2/seg3"} {
		t.Add(path, &resource.Resource{Get: func(r *resource.Request) {
			answerDescription(r, "Long path resource\n"+string(describeMessage(r.Message)))
		}})
	}
	t.Add("/query", &resource.Resource{Attributes: ct, Get: serveQuery})
	t.Add("/multi-format", &resource.Resource{Attributes: attributes("ct", "0 41 50 60"), Get: serveFormats})
	t.Add("/shutdown", &resource.Resource{Post: p.serveShutdown})
	for i, a := range [][]resource.Attribute{attributes("if", "If1", "rt", "Type1 Type2"), attributes("if", "If2", "rt", "Type2 Type3"), attributes("if", "foo", "rt", "Type1 Type3")} {
		t.Add(fmt.Sprintf("/link%d", i+1), &resource.Resource{Attributes: a})
	}
	var links []byte
	for i := range 3 {
		path := fmt.Sprintf("/path/sub%d", i+1)
		links = resource.AppendLink(links, path)
		t.Add(path, &resource.Resource{Get: func(r *resource.Request) { answerText(r, path) }})
	}
	t.Add("/path", &resource.Resource{Attributes: attributes("ct", "40"), Get: func(r *resource.Request) {
		if _, ok := r.Accepts(message.LinkFormat); ok {
			r.Answer(message.Content, message.LinkFormat, links)
		}
	}})
	p.addStored(t)
	p.addLarge(t)
	p.addObserved(t)
}

// sesame is the public word of /shutdown and /obs-reset.
const sesame = "sesame"

// serveShutdown ends the Node for requests with the public word, if its configuration permits that.
func (p *plugtest) serveShutdown(r *resource.Request) {
	switch {
	case p.shutdown == nil:
		r.Error(message.Forbidden, "this server does not take it from a client")
	case string(r.Body) != sesame:
		r.Error(message.Forbidden, "")
	default:
		select {
		case p.shutdown <- struct{}{}:
		default: // it ends already
		}
		r.Done(message.Changed)
	}
}

// shutdownDelay is how long the Node serves after /shutdown, so that the answer leaves and a repeated request gets it too.
const shutdownDelay = 500 * time.Millisecond

// awaitShutdown returns when a client has ended the Node, or with ctx.
func (p *plugtest) awaitShutdown(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-p.shutdown:
	}
	timer := time.NewTimer(shutdownDelay)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	return nil
}

// done is a method that only answers with a code.
func done(code message.Code) func(*resource.Request) {
	return func(r *resource.Request) { r.Done(code) }
}

// maxText is the longest text of the resources that describe a request, in bytes, so that one block of the plugtest profile holds
// it.
const maxText = 64

// answerDescription answers with a text that contains what describe says of the request and therefore differs for each block of
// the same answer: it is shortened to one message and, where not even that fits, cut before its first property that differs.
func answerDescription(r *resource.Request, text string) {
	if _, ok := r.Accepts(message.Text); !ok {
		return
	}
	stable, _, _ := strings.Cut(text, "\nMID")
	r.AnswerVarying(message.Content, message.Text, []byte(shorten(text)), []byte(stable))
}

func answerText(r *resource.Request, text string) {
	if _, ok := r.Accepts(message.Text); ok {
		r.Answer(message.Content, message.Text, []byte(text))
	}
}

func serveTest(r *resource.Request) {
	r.MaxAge(30)
	answerDescription(r, string(describe(r.Message)))
}

func serveQuery(r *resource.Request) {
	var queries []string
	for options := r.Message.Options(); options.Next(); {
		if options.ID() == message.URIQuery {
			queries = append(queries, string(options.Value()))
		}
	}
	answerDescription(r, string(describeMessage(r.Message))+"\n?"+strings.Join(queries, "&"))
}

func serveFormats(r *resource.Request) {
	format, ok := r.Accepts(message.Text, message.XML, message.JSON, message.CBOR)
	if !ok {
		return
	}
	m := r.Message
	stable := []field{{"type", m.Type.String()}, {"code", m.Code.Name()}, {"accept", int(format)}}
	if format == message.Text {
		text := fmt.Sprintf("Status type: \"%s\"\nCode: \"%s\"", m.Type, m.Code.Name())
		r.AnswerVarying(message.Content, format, fmt.Appendf(nil, "%s\nMID: \"%d\"\nAccept: \"%d\"", text, m.ID, format), []byte(text))
		return
	}
	whole := []field{stable[0], stable[1], {"mid", int(m.ID)}, stable[2]}
	r.AnswerVarying(message.Content, format, render(format, "msg", whole), render(format, "msg", stable))
}
