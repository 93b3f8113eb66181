package node

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weir-lb/weir/internal/coap/exchange"
	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/coap/resource"
)

// Bounds of /reverse-request.
const (
	maxReverse        = 1 << 24 // requests of a run
	maxReverseSession = 4       // runs of a client
)

// reverseCounts are the statistics of /reverse-request, of all workers.
type reverseCounts struct {
	requested, sent, pending atomic.Int64
	failed, refused          atomic.Int64
}

// retryAfter is the Max-Age, in seconds, of an answer that there is no room now (RFC 7252 section 5.9.3.4).
const retryAfter = 5

// reverse is a run of requests that a client has asked the server for. A session has one request under way at most, that of its first run.
type reverse struct {
	remote
	left int
	id   exchange.ID // of the request under way; 0: it is still to be sent
}

// serveReverse answers 2.04 and then requests a resource of the client, after what the client has asked for before. req=0 ends all of that;
// without a query it answers with statistics.
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
	switch {
	case wanted.left == 0:
		c.endReverses(own)
	case !c.addReverse(own, &wanted):
		counts.refused.Add(1)
		unavailable(r)
		return
	default:
		counts.requested.Add(int64(wanted.left))
		counts.pending.Add(int64(wanted.left))
	}
	r.Done(message.Changed)
}

// addReverse lengthens a run of the same requests, or else begins one after those that there are. It returns false if there is no room.
func (c *core) addReverse(own *session, wanted *reverse) bool {
	for _, run := range own.reverses {
		if slices.Equal(run.path, wanted.path) && slices.Equal(run.queries, wanted.queries) {
			if run.left > maxReverse-wanted.left {
				return false
			}
			run.left += wanted.left
			return true
		}
	}
	if len(own.reverses) == maxReverseSession || len(own.reverses) == 0 && !c.worker.Post(func() { c.continueReverse(own, wanted) }) {
		return false
	}
	own.reverses = append(own.reverses, wanted)
	return true
}

// unavailable answers that the server is too busy for what the request asks for.
func unavailable(r *resource.Request) {
	r.MaxAge(retryAfter)
	r.Done(message.ServiceUnavailable)
}

// endReverses ends all that a client has asked for.
func (c *core) endReverses(own *session) {
	for len(own.reverses) > 0 {
		c.endReverse(own)
	}
}

// endReverse ends the first run of a client.
func (c *core) endReverse(own *session) {
	ended := own.reverses[0]
	own.reverses = slices.Delete(own.reverses, 0, 1)
	c.listener.extended.reverse.pending.Add(-int64(ended.left))
	if ended.id != 0 {
		c.endpoint.Cancel(ended.id)
	}
}

// continueReverse sends the next request of a run, unless it was ended, or the session was.
func (c *core) continueReverse(own *session, this *reverse) {
	if len(own.reverses) == 0 || own.reverses[0] != this {
		return
	}
	if c.requestReverse(own, this, -1) {
		c.listener.extended.reverse.sent.Add(1)
	}
}

// requestReverse sends a request of a run, for a block of the representation; negative: the first one.
func (c *core) requestReverse(own *session, this *reverse, block int64) bool {
	var err error
	this.id, err = c.get(own, &this.remote, own.token(), -1, block)
	if err != nil { // too long, or too many messages are pending
		c.listener.extended.reverse.failed.Add(1)
		c.endReverses(own)
		return false
	}
	c.awaken()
	return true
}

// Response implements [exchange.Events]. An error ends the run, and the next one begins.
func (c *core) Response(s *exchange.Session, id exchange.ID, m *message.Message, _ time.Duration, _ int) {
	own := ownerOf(s)
	if !own.requests(id) {
		c.registered(own, id, m)
		return
	}
	this := own.reverses[0]
	this.id = 0
	if block := nextBlock(m); block >= 0 {
		c.requestReverse(own, this, block)
		return
	}
	this.left--
	c.listener.extended.reverse.pending.Add(-1)
	if m.Code.Class() != 2 {
		c.listener.extended.reverse.failed.Add(1)
		c.endReverse(own)
	} else if this.left == 0 {
		c.endReverse(own)
	}
	if len(own.reverses) > 0 {
		c.continueReverse(own, own.reverses[0])
	}
}

// requests reports whether id is the request of /reverse-request that is under way. own may be nil.
func (own *session) requests(id exchange.ID) bool {
	return own != nil && len(own.reverses) > 0 && own.reverses[0].id == id
}

// Failed implements [exchange.Events]. A client that does not answer is asked no more.
func (c *core) Failed(s *exchange.Session, id exchange.ID, _ exchange.Failure) {
	own := ownerOf(s)
	if !own.requests(id) {
		c.unregistered(own, id)
		return
	}
	own.reverses[0].id = 0
	c.listener.extended.reverse.failed.Add(1)
	c.endReverses(own)
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
