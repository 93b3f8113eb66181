package node

import (
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/dtls/record"
)

// observedClient is a client that the server observes. It answers nothing by itself.
type observedClient struct{ *client }

// say sends a message and returns what the server has sent then, without the acknowledgements.
func (c observedClient) say(kind message.Type, code message.Code, id uint16, token []byte, observe int, payload string) (all []message.Message) {
	c.t.Helper()
	return c.sayBlock(kind, code, id, token, observe, -1, payload)
}

// sayBlock is say with the value of a Block2 option; -1: none.
func (c observedClient) sayBlock(kind message.Type, code message.Code, id uint16, token []byte, observe, block int, payload string) (all []message.Message) {
	c.t.Helper()
	var b message.Builder
	b.Reset(make([]byte, 0, 256), kind, code, id, token)
	if observe >= 0 {
		b.Uint(message.Observe, uint32(observe))
	}
	if block >= 0 {
		b.Uint(message.Block2, uint32(block))
	}
	b.Payload([]byte(payload))
	wire, err := b.Bytes()
	if err != nil {
		c.t.Fatal(err)
	}
	return c.sent(c.send(c.seal(wire), c.at))
}

// sent is what the server sends at once, after what it sent before.
func (c observedClient) sent(before [][]byte) (all []message.Message) {
	c.t.Helper()
	c.pass(time.Millisecond)
	for _, m := range c.messages(append(before, c.take(c.at)...)) {
		if m.Code != message.Empty || m.Type == message.Rst {
			all = append(all, m)
		}
	}
	return all
}

// post asks to be observed.
func (c observedClient) post(queries string) []message.Message {
	c.t.Helper()
	c.mid++
	q := query{path: "/reverse-observe", queries: strings.Split(queries, "&"), accept: -1, block: -1}
	if queries == "" {
		q.queries = nil
	}
	return c.sent(c.send(c.seal(q.build(c.t, message.Con, message.POST, c.mid, []byte("post"))), c.at))
}

// one is the only message, which has this code and this Observe value; -1: none.
func (c observedClient) one(all []message.Message, code message.Code, observe int) message.Message {
	c.t.Helper()
	if len(all) != 1 || all[0].Code != code {
		c.t.Fatalf("%d messages %+v, want one %s", len(all), all, code)
	}
	if value, ok := all[0].Uint(message.Observe); ok != (observe >= 0) || ok && int(value) != observe {
		c.t.Fatalf("Observe %d %t, want %d", value, ok, observe)
	}
	return all[0]
}

func (c observedClient) active(want string) {
	c.t.Helper()
	if m := c.one(c.post(""), message.Changed, -1); string(m.Payload) != want {
		c.t.Fatalf("%s, want %s", m.Payload, want)
	}
}

func newObserved(t *testing.T) observedClient {
	return observedClient{newOffline(t, true, nil).client(true)}
}

// established is the token of an observation that has begun.
func (c observedClient) established(queries string) []byte {
	c.t.Helper()
	get := c.one(c.post(queries), message.GET, 0)
	if get.Type != message.Con {
		c.t.Fatal(get.Type)
	}
	answer := c.one(c.say(message.Ack, message.Content, get.ID, get.Token, 7, "state"), message.Changed, -1)
	if string(answer.Token) != "post" || string(answer.Payload) != hex.EncodeToString(get.Token) || answer.Type != message.Con {
		c.t.Fatalf("%s %s %q", answer.Type, answer.Token, answer.Payload)
	}
	c.say(message.Ack, message.Empty, answer.ID, nil, -1, "")
	return get.Token
}

// The server observes a resource of the client: it registers, counts what is new, registers again under the same token after obs
// notifications and after a silence, and cancels when asked.
func TestReverseObserve(t *testing.T) {
	c := newObserved(t)
	token := c.established("obs=3&res=feed-CON/x&rlen=9&timeout=10")
	c.active("1 active observes, 0 notifies.")
	for i, sequence := range []int{8, 9, 8} { // the last one is late, and not counted
		if more := c.say(message.Con, message.Content, uint16(500+i), token, sequence, "state"); len(more) != 0 {
			t.Fatalf("%+v", more)
		}
	}
	c.active("1 active observes, 2 notifies.")
	again := c.one(c.say(message.Non, message.Content, 510, token, 10, "state"), message.GET, 0)
	if string(again.Token) != string(token) {
		t.Errorf("token %x, want %x", again.Token, token)
	}
	var path, queries []string
	for options := again.Options(); options.Next(); {
		switch options.ID() {
		case message.URIPath:
			path = append(path, string(options.Value()))
		case message.URIQuery:
			queries = append(queries, string(options.Value()))
		}
	}
	if strings.Join(path, "/") != "feed-CON/x" || strings.Join(queries, "&") != "rlen=9" {
		t.Errorf("%q %q", path, queries)
	}
	c.one(c.post("obs=3&res=feed-CON/x"), message.ServiceUnavailable, -1) // it is registering
	if more := c.say(message.Ack, message.Content, again.ID, again.Token, 11, "state"); len(more) != 0 {
		t.Fatalf("%+v", more)
	}
	c.pass(9 * time.Second)
	if got := c.take(c.at); len(got) != 0 {
		t.Fatalf("%d datagrams", len(got))
	}
	c.pass(2 * time.Second)
	again = c.one(c.messages(c.take(c.at)), message.GET, 0)
	c.say(message.Ack, message.Content, again.ID, again.Token, 12, "state")

	all := c.post("obs=0&res=feed-CON/x")
	if len(all) != 2 || all[0].Code != message.Changed {
		t.Fatalf("%+v", all)
	}
	c.one(all[1:], message.GET, 1)
	c.say(message.Ack, message.Content, all[1].ID, all[1].Token, -1, "state")
	if m := c.one(c.say(message.Con, message.Content, 520, token, 13, "state"), message.Empty, -1); m.Type != message.Rst {
		t.Errorf("%+v", m)
	}
	c.active("0 active observes, 3 notifies.")
}

// A client that refuses, does not answer, ends the observation or goes away is observed no more, and learns why.
func TestReverseObserveEnds(t *testing.T) {
	for name, test := range map[string]struct {
		code    message.Code
		observe int
		want    message.Code
	}{
		"refused":       {message.NotFound, -1, message.NotFound},
		"no observe":    {message.Content, -1, message.NotAcceptable},
		"not answering": {want: message.InternalServerError},
	} {
		c := newObserved(t)
		get := c.one(c.post("obs=3&res=feed"), message.GET, 0)
		var all []message.Message
		if test.code != 0 {
			all = c.say(message.Ack, test.code, get.ID, get.Token, test.observe, "")
		} else {
			c.pass(2 * time.Minute)
			all = c.messages(c.take(c.at))
			for len(all) > 0 && all[0].Code == message.GET { // repetitions
				all = all[1:]
			}
		}
		if len(all) == 0 || all[0].Code != test.want || string(all[0].Token) != "post" {
			t.Fatalf("%s: %+v", name, all)
		}
		c.say(message.Ack, message.Empty, all[0].ID, nil, -1, "")
		c.active("0 active observes, 0 notifies.")
	}
	c := newObserved(t)
	token := c.established("obs=3&res=feed")
	c.say(message.Con, message.NotFound, 700, token, -1, "")
	c.active("0 active observes, 0 notifies.")
	c.established("obs=3&res=feed")
	c.active("1 active observes, 0 notifies.")
	other := observedClient{c.offline.client(true)}
	other.established("obs=3&res=feed")
	c.active("2 active observes, 0 notifies.")
	buf := make([]byte, record.MaxHeadRoom+2+record.MaxTailRoom)
	copy(buf[record.MaxHeadRoom:], []byte{1, 0}) // close_notify
	bye, err := c.a.Seal(c.scratch, record.Alert, buf, record.MaxHeadRoom, 2)
	if err != nil {
		t.Fatal(err)
	}
	c.send(bye, c.at)
	other.active("1 active observes, 0 notifies.")
}

// What the client sends in blocks is fetched to its end, under other tokens and without Observe (RFC 7959 section 3.4); then a notification
// counts. A newer one takes the place of one that is still being fetched.
func TestReverseObserveFetchesBlocks(t *testing.T) {
	const first, second, last = 0<<4 | 8 | 2, 1<<4 | 8 | 2, 2<<4 | 2 // blocks of 64 bytes
	block := strings.Repeat("b", 64)
	c := newObserved(t)
	// wants is the request for a block.
	wants := func(all []message.Message, token []byte, number uint32) message.Message {
		t.Helper()
		m := c.one(all, message.GET, -1)
		if value, ok := m.Uint(message.Block2); !ok || value != number<<4|2 || string(m.Token) == string(token) {
			t.Fatalf("Block2 %d %t, token %q", value, ok, m.Token)
		}
		return m
	}
	get := c.one(c.post("obs=2&res=feed&rlen=150"), message.GET, 0)
	all := c.sayBlock(message.Ack, message.Content, get.ID, get.Token, 7, first, block)
	if len(all) != 2 || all[1].Code != message.Changed {
		t.Fatalf("%+v", all)
	}
	more := wants(append(all[:1], c.say(message.Ack, message.Empty, all[1].ID, nil, -1, "")...), get.Token, 1)
	if q, ok := more.Option(message.URIQuery); !ok || string(q) != "rlen=150" {
		t.Errorf("query %q", q)
	}
	more = wants(c.sayBlock(message.Ack, message.Content, more.ID, more.Token, -1, second, block), get.Token, 2)
	if all := c.sayBlock(message.Ack, message.Content, more.ID, more.Token, -1, last, "b"); len(all) != 0 {
		t.Fatalf("%+v", all)
	}
	c.active("1 active observes, 0 notifies.")
	old := wants(c.sayBlock(message.Con, message.Content, 600, get.Token, 8, first, block), get.Token, 1)
	more = wants(c.sayBlock(message.Con, message.Content, 601, get.Token, 9, first, block), get.Token, 1)
	c.say(message.Ack, message.Content, old.ID, old.Token, -1, block)
	c.active("1 active observes, 0 notifies.")
	c.sayBlock(message.Ack, message.Content, more.ID, more.Token, -1, 1<<4|2, "b")
	c.active("1 active observes, 1 notifies.")
	more = wants(c.sayBlock(message.Con, message.Content, 602, get.Token, 10, first, block), get.Token, 1)
	again := c.one(c.sayBlock(message.Ack, message.Content, more.ID, more.Token, -1, 1<<4|2, "b"), message.GET, 0) // after two: registers again
	if string(again.Token) != string(get.Token) {
		t.Errorf("token %x, want %x", again.Token, get.Token)
	}
	// A client whose representation has no end is not asked for ever.
	c.say(message.Ack, message.Content, again.ID, again.Token, 11, "state")
	more = wants(c.sayBlock(message.Con, message.Content, 603, get.Token, 12, first, block), get.Token, 1)
	requests := 1
	for number := 1; ; number, requests = number+1, requests+1 {
		all := c.sayBlock(message.Ack, message.Content, more.ID, more.Token, -1, number<<4|8|2, block)
		if len(all) == 0 {
			break
		}
		more = wants(all, get.Token, uint32(number+1))
	}
	if requests != maxFetched/64-1 {
		t.Errorf("%d requests", requests)
	}
}

// Observations are bounded for each client and in all, and what makes no sense is refused.
func TestReverseObserveIsBounded(t *testing.T) {
	c := newObserved(t)
	for _, name := range []string{"1", "2", "3", "4"} {
		c.established("obs=3&res=" + name)
	}
	c.one(c.post("obs=3&res=5"), message.ServiceUnavailable, -1)
	c.established("obs=9&res=4") // there is one already
	c.listener.extended.watch.active.Store(maxWatched)
	other := observedClient{c.offline.client(true)}
	other.one(other.post("obs=3&res=1"), message.ServiceUnavailable, -1)
	for _, queries := range []string{"obs=1", "res=x", "obs=-1&res=x", "obs=99999999&res=x", "obs=1&res=x&timeout=0", "obs=1&res=x&timeout=y"} {
		other.one(other.post(queries), message.BadOption, -1)
	}
	if m := other.one(other.post("obs=0&res=unknown"), message.Changed, -1); len(m.Payload) != 0 {
		t.Errorf("%q", m.Payload)
	}
}
