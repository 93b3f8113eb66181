package node

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weir-lb/weir/internal/coap/exchange"
	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/coap/resource"
	"github.com/weir-lb/weir/internal/dtls/engine"
	"github.com/weir-lb/weir/internal/steering/heap"
)

// Bounds of /reverse-observe.
const (
	maxNotifies       = 10_000_000 // until the server registers again
	maxWatched        = 16384      // observations of a Node
	maxWatchedSession = 4          // observations at one client
	maxSilence        = 3600       // seconds until the server registers again
	defaultSilence    = 30         // seconds
)

// watchCounts are the statistics of /reverse-observe, of all workers.
type watchCounts struct{ active, notifications, registrations, failed, refused atomic.Int64 }

// watch is the observation of a resource at a client (RFC 7641).
type watch struct {
	remote
	own         *session
	resource    string // the value of res
	token       []byte
	every, left int                // notifications until the next registration; every is 0 if the observation is to end
	silence     time.Duration      // without a notification, until the next registration
	sequence    uint32             // of the newest notification
	at          time.Duration      // when it came; negative: none did
	id          exchange.ID        // of the registration under way; 0: none
	rest        exchange.ID        // of the request for a further block of the representation; 0: none
	block       int64              // the Block2 option that is to be sent next; negative: none
	counts      bool               // the representation came with a notification, which counts when all of it is there
	post        *resource.Deferred // the POST that is to be answered; nil: none
	format      message.Format     // of its answer
	starting    bool               // the registration is still to be sent
}

// watches are the observations of one worker.
type watches struct {
	slots []*watch // nil: free
	free  []int32
	due   heap.Heap[time.Duration] // the next registration
}

// next returns when renewWatches has something to do.
func (w *watches) next() time.Duration {
	if _, at, ok := w.due.First(); ok {
		return at
	}
	return engine.Never
}

// add enters an observation.
func (w *watches) add(this *watch) (i int32) {
	if n := len(w.free); n > 0 {
		i, w.free = w.free[n-1], w.free[:n-1]
		w.slots[i] = this
		return i
	}
	w.slots = append(w.slots, this)
	return int32(len(w.slots) - 1)
}

// watchQuery is the query of a POST; every is negative without obs.
func watchQuery(r *resource.Request, arguments []argument) (w watch, ok bool) {
	w.every, w.silence, w.block = -1, defaultSilence*time.Second, -1
	for _, a := range arguments {
		ok := true
		switch a.name {
		case "obs":
			w.every, ok = numberOf(a.value, 0, maxNotifies)
		case "timeout":
			var seconds int
			seconds, ok = numberOf(a.value, 1, maxSilence)
			w.silence = time.Duration(seconds) * time.Second
		case "res":
			w.resource = strings.TrimPrefix(a.value, "/")
			w.path = strings.Split(w.resource, "/")
		default:
			w.queries = append(w.queries, string(a.raw))
		}
		if !ok {
			r.BadQuery(a.raw, "obs is 0 to 10000000, timeout 1 to 3600 seconds")
			return w, false
		}
	}
	if w.every < 0 || w.path == nil {
		r.Error(message.BadOption, "obs=N and res=PATH are needed, timeout=SECONDS is known; other queries are passed on")
		return w, false
	}
	return w, true
}

// serveWatch observes a resource of the client, and answers with the token once the client has registered the server. obs=0 ends
// that; without a query it answers with statistics.
func (c *core) serveWatch(r *resource.Request) {
	format, ok := r.Accepts(message.Text, message.OctetStream)
	if !ok {
		return
	}
	arguments := queries(r)
	if len(arguments) == 0 {
		c.listener.extended.watch.answer(r, format)
		return
	}
	wanted, ok := watchQuery(r, arguments)
	if !ok {
		return
	}
	own := owner(r.Session)
	if own.peer != nil && !own.peer.Proven() {
		r.AnswerWhole(message.Changed, message.Text) // nothing fits: requests a proof of the address
		return
	}
	i := c.watchOf(own, wanted.resource)
	switch {
	case wanted.every == 0:
		if i >= 0 {
			c.watches.slots[i].every = 0
			c.watches.due.Set(i, c.now) // after the answer, by Tick
			c.wakeAt(c.now)
		}
		r.Done(message.Changed)
	case i >= 0 && (c.watches.slots[i].starting || c.watches.slots[i].id != 0):
		c.listener.extended.watch.refused.Add(1)
		unavailable(r) // a registration for this resource is under way
	case i < 0 && len(own.watched) >= maxWatchedSession:
		c.listener.extended.watch.refused.Add(1)
		unavailable(r) // too many resources of this client are observed
	case i < 0 && !c.listener.extended.watch.take():
		c.listener.extended.watch.refused.Add(1)
		unavailable(r) // too many observations
	default:
		wanted.format = format
		c.watch(r, own, i, &wanted)
	}
}

// watch begins the observation wanted, or changes observation i and registers again under its token.
func (c *core) watch(r *resource.Request, own *session, i int32, wanted *watch) {
	wanted.own, wanted.starting = own, true
	if i >= 0 {
		old := c.watches.slots[i]
		c.dropRest(old)
		wanted.token, wanted.sequence, wanted.at = old.token, old.sequence, old.at
		c.watches.slots[i] = wanted
	} else {
		var token [8]byte
		_, _ = rand.Read(token[:]) // never fails (crypto/rand)
		wanted.token, wanted.at = token[:], -1
		i = c.watches.add(wanted)
		own.watched = append(own.watched, i)
	}
	wanted.post = r.Defer()
	c.watches.due.Set(i, c.now) // after the acknowledgement, by Tick
	c.wakeAt(c.now)
}

// watchOf returns the observation of a resource at a client, or -1.
func (c *core) watchOf(own *session, name string) int32 {
	for _, i := range own.watched {
		if c.watches.slots[i].resource == name {
			return i
		}
	}
	return -1
}

// register sends the registration of observation i, again under the same token if there was one (RFC 7641 section 3.1).
func (c *core) register(i int32) {
	w := c.watches.slots[i]
	c.dropRest(w)
	w.starting, w.left = false, w.every
	c.watches.due.Remove(i)
	var err error
	c.listener.extended.watch.registrations.Add(1)
	if w.id, err = c.get(w.own, &w.remote, w.token, 0, -1); err != nil { // too long, or too many messages are pending
		c.listener.extended.watch.failed.Add(1)
		w.answer(message.InternalServerError, nil, c.now)
		c.endWatch(i)
	}
	c.awaken()
}

// cancelWatch ends an observation and informs the client (RFC 7641 section 3.6).
func (c *core) cancelWatch(i int32) {
	w := c.watches.slots[i]
	w.answer(message.ServiceUnavailable, nil, c.now)
	c.endWatch(i)
	_, _ = c.get(w.own, &w.remote, w.token, 1, -1) // if it does not arrive, the reset of the next notification ends the observation
	c.awaken()
}

// endWatch forgets an observation: the client's next confirmable notification is rejected.
func (c *core) endWatch(i int32) {
	w := c.watches.slots[i]
	if w.id != 0 {
		c.endpoint.Cancel(w.id)
	}
	c.dropRest(w)
	c.watches.due.Remove(i)
	c.watches.slots[i] = nil
	c.watches.free = append(c.watches.free, i)
	w.own.watched = slices.DeleteFunc(w.own.watched, func(other int32) bool { return other == i })
	c.listener.extended.watch.active.Add(-1)
}

// endWatches forgets the observations at a client.
func (c *core) endWatches(own *session) {
	for len(own.watched) > 0 {
		c.endWatch(own.watched[0])
	}
}

// renewWatches registers where that is due: at first, after so many notifications, and where none came for long (RFC 7641 section
// 3.3.1). It requests further blocks, and cancels where the client has requested that.
func (c *core) renewWatches(now time.Duration) {
	for {
		i, at, ok := c.watches.due.First()
		if !ok || at > now {
			return
		}
		switch w := c.watches.slots[i]; {
		case w.every == 0:
			c.cancelWatch(i)
		case w.block >= 0:
			c.watches.due.Set(i, now+w.silence)
			c.fetch(i)
		default:
			c.register(i)
		}
	}
}

// registering returns the observation whose registration is id, or -1.
func (c *core) registering(own *session, id exchange.ID) int32 {
	if own != nil {
		for _, i := range own.watched {
			if c.watches.slots[i].id == id {
				return i
			}
		}
	}
	return -1
}

// registered takes the answer to a registration. An error, or an answer without Observe, ends the observation.
func (c *core) registered(own *session, id exchange.ID, m *message.Message) {
	i := c.registering(own, id)
	if i < 0 {
		c.fetched(own, id, m)
		return
	}
	w := c.watches.slots[i]
	w.id = 0
	sequence, observed := m.Uint(message.Observe)
	switch {
	case m.Code.Class() != 2:
		c.listener.extended.watch.failed.Add(1)
		w.answer(m.Code, nil, c.now)
	case !observed:
		c.listener.extended.watch.failed.Add(1)
		w.answer(message.NotAcceptable, nil, c.now)
	default:
		w.sequence, w.at = sequence, c.now
		if w.every > 0 { // else it ends at once
			c.watches.due.Set(i, c.now+w.silence)
			c.wakeAt(c.now + w.silence)
			c.fetchLater(i, m, false)
		}
		body := w.token
		if w.format == message.Text {
			body = []byte(hex.EncodeToString(w.token))
		}
		w.answer(message.Changed, body, c.now)
		return
	}
	c.endWatch(i)
}

// unregistered takes the failure of a registration, or of a request for a further block.
func (c *core) unregistered(own *session, id exchange.ID) {
	if i := c.registering(own, id); i >= 0 {
		w := c.watches.slots[i]
		w.id = 0
		c.listener.extended.watch.failed.Add(1)
		w.answer(message.InternalServerError, nil, c.now)
		c.endWatch(i)
	} else if i := c.fetching(own, id); i >= 0 {
		c.watches.slots[i].rest = 0
	}
}

// answer answers the POST that requested the observation, once.
func (w *watch) answer(code message.Code, body []byte, now time.Duration) {
	if w.post != nil {
		w.post.Answer(code, w.format, body, now)
		w.post = nil
	}
}

// notification implements exchange.Config.Unmatched: it takes notifications of what the server observes.
func (c *core) notification(s *exchange.Session, m *message.Message) bool {
	own := ownerOf(s)
	if own == nil {
		return false
	}
	for _, i := range own.watched {
		w := c.watches.slots[i]
		if string(w.token) != string(m.Token) {
			continue
		}
		sequence, observed := m.Uint(message.Observe)
		if m.Code.Class() != 2 || !observed { // the client ends it (RFC 7641 section 3.2)
			c.endWatch(i)
			return true
		}
		if own.conn != nil || w.at < 0 || exchange.Newer(sequence, w.sequence, c.now-w.at) {
			w.sequence, w.at = sequence, c.now
			if w.starting || w.id != 0 || w.every == 0 || !c.fetchLater(i, m, true) {
				c.notified(i)
			}
		}
		return true
	}
	return false
}

// notified counts a notification, and registers again after so many as were requested.
func (c *core) notified(i int32) {
	w := c.watches.slots[i]
	c.listener.extended.watch.notifications.Add(1)
	w.left--
	switch {
	case w.starting || w.id != 0 || w.every == 0: // it registers now, or ends
	case w.left > 0:
		c.watches.due.Set(i, c.now+w.silence)
	default: // after the acknowledgement, by Tick
		c.watches.due.Set(i, c.now)
		c.wakeAt(c.now)
	}
}

// take counts an observation, if there is room for it.
func (n *watchCounts) take() bool {
	if n.active.Add(1) > maxWatched {
		n.active.Add(-1)
		return false
	}
	return true
}

// answer answers with the statistics, in Californium's forms.
func (n *watchCounts) answer(r *resource.Request, format message.Format) {
	active, notifications := n.active.Load(), n.notifications.Load()
	if format == message.OctetStream {
		b := binary.BigEndian.AppendUint32(nil, uint32(active))     //nolint:gosec // at most maxWatched
		b = binary.BigEndian.AppendUint64(b, uint64(notifications)) //nolint:gosec // never negative
		r.Answer(message.Changed, format, b)
		return
	}
	r.Answer(message.Changed, format, fmt.Appendf(nil, "%d active observes, %d notifies.", active, notifications))
}
