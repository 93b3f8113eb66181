package node

import (
	"encoding/binary"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weir-lb/weir/internal/coap/exchange"
	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/coap/resource"
)

// maxReverse bounds the requests that one POST requests.
const maxReverse = 1 << 24

// reverseCounts are the statistics of /reverse-request, of all workers.
type reverseCounts struct {
	requested, sent, pending atomic.Int64
	failed, refused          atomic.Int64
}

// retryAfter is the Max-Age, in seconds, of an answer that there is no room now (RFC 7252 section 5.9.3.4).
const retryAfter = 5

// reverse is what a client has asked the server to request from it, one after the other: at most one request of a session is under way.
type reverse struct {
	path, queries []string
	left          int
	id            exchange.ID // of the request under way; 0: it is still to be sent
	number        uint32      // of the newest token
}

// serveReverse answers 2.04 and then requests a resource of the client. req=0 ends that; without a query it answers with statistics.
func (c *core) serveReverse(r *resource.Request) {
	counts := &c.listener.extended.reverse
	arguments := queries(r)
	if len(arguments) == 0 {
		counts.answer(r)
		return
	}
	own := owner(r.Session)
	wanted := reverse{left: -1}
	for _, a := range arguments {
		ok := true
		switch a.name {
		case "req":
			wanted.left, ok = numberOf(a.value, 0, maxReverse)
		case "res":
			wanted.path = strings.Split(strings.TrimPrefix(a.value, "/"), "/")
		default:
			wanted.queries = append(wanted.queries, string(a.raw))
		}
		if !ok {
			r.BadQuery(a.raw, "req is 0 to 16777216")
			return
		}
	}
	if wanted.left < 0 || wanted.path == nil {
		r.Error(message.BadOption, "req=N and res=PATH are needed; other queries are passed on")
		return
	}
	if own.peer != nil && !own.peer.Proven() {
		r.AnswerWhole(message.Changed, message.Text) // nothing fits: requests a proof of the address
		return
	}
	c.endReverse(own)
	if wanted.left > 0 {
		if !c.worker.Post(func() { c.continueReverse(own, &wanted) }) {
			counts.refused.Add(1)
			unavailable(r)
			return
		}
		counts.requested.Add(int64(wanted.left))
		counts.pending.Add(int64(wanted.left))
		own.reverse = &wanted
	}
	r.Done(message.Changed)
}

// unavailable answers that the server is too busy for what the request asks for.
func unavailable(r *resource.Request) {
	r.MaxAge(retryAfter)
	r.Done(message.ServiceUnavailable)
}

// endReverse ends what a client has requested.
func (c *core) endReverse(own *session) {
	if own.reverse == nil {
		return
	}
	ended := own.reverse
	own.reverse = nil
	c.listener.extended.reverse.pending.Add(-int64(ended.left))
	if ended.id != 0 {
		c.endpoint.Cancel(ended.id)
	}
}

// continueReverse sends the next request, unless another one took its place, or the session has ended.
func (c *core) continueReverse(own *session, this *reverse) {
	if own.reverse != this {
		return
	}
	this.number++
	kind := message.Con
	if own.conn != nil {
		kind = message.Non
	}
	var b message.Builder
	token := binary.BigEndian.AppendUint32([]byte{'r'}, this.number)
	b.Reset(make([]byte, 0, 600), kind, message.GET, c.endpoint.NextID(&own.Session.Session), token)
	for _, segment := range this.path {
		b.Text(message.URIPath, segment)
	}
	for _, q := range this.queries {
		b.Text(message.URIQuery, q)
	}
	datagram, err := b.Bytes()
	if err == nil {
		this.id, err = c.endpoint.Send(&own.Session.Session, datagram, c.now)
	}
	if err != nil { // too long, or too many messages are pending
		c.listener.extended.reverse.failed.Add(1)
		c.endReverse(own)
		return
	}
	c.listener.extended.reverse.sent.Add(1)
	c.awaken()
}

// Response implements [exchange.Events].
func (c *core) Response(s *exchange.Session, id exchange.ID, m *message.Message, _ time.Duration, _ int) {
	own := ownerOf(s)
	if own == nil || own.reverse == nil || own.reverse.id != id {
		c.registered(own, id, m)
		return
	}
	this := own.reverse
	this.id = 0
	this.left--
	c.listener.extended.reverse.pending.Add(-1)
	if this.left == 0 {
		own.reverse = nil
		return
	}
	c.continueReverse(own, this)
}

// Failed implements [exchange.Events]. A client that does not answer is asked no more.
func (c *core) Failed(s *exchange.Session, id exchange.ID, _ exchange.Failure) {
	own := ownerOf(s)
	if own == nil || own.reverse == nil || own.reverse.id != id {
		c.unregistered(own, id)
		return
	}
	own.reverse.id = 0
	c.listener.extended.reverse.failed.Add(1)
	c.endReverse(own)
}

// answer answers with the statistics, in Californium's forms.
func (n *reverseCounts) answer(r *resource.Request) {
	requested, sent, pending := n.requested.Load(), n.sent.Load(), n.pending.Load()
	format, ok := r.Accepts(message.Text, message.OctetStream)
	if !ok {
		return
	}
	if format == message.OctetStream {
		var b []byte
		for _, v := range []int64{requested, sent, pending} {
			b = binary.BigEndian.AppendUint64(b, uint64(v)) //nolint:gosec // the wire format
		}
		r.Answer(message.Changed, format, b)
		return
	}
	r.Answer(message.Changed, format, fmt.Appendf(nil, "%d reverse-requests, %d sent, %d pending.", requested, sent, pending))
}
