package node

import (
	"bytes"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/coap/resource"
	"github.com/weir-lb/weir/internal/steering/evict"
)

// Bounds of what /echo keeps. When it is full, the oldest of the source that holds most makes room.
const (
	maxEchoes      = 500
	maxEchoBytes   = 1 << 20 // of bodies
	maxEchoName    = 64      // bytes
	echoLifetime   = 6 * time.Hour
	maxEchoDelay   = 60000 // milliseconds
	knownEchoQuery = "rlen=0..8192, ack, keep, id=NAME and, with --echo-delay, delay=1..60000 are"
)

// echoStore is what clients have asked to keep, by name.
type echoStore struct {
	entries map[string]int32
	slots   []keptEcho
	free    []int32
	order   evict.Order[evict.Source]
	bytes   int
}

type keptEcho struct {
	name string
	stored
	at time.Time
}

// echoQuery is what a POST to /echo requests.
type echoQuery struct {
	length int // -1: that of the request
	delay  time.Duration
	later  bool
	keep   bool
	id     string
}

// serveEcho answers a POST with its body.
func (e *extended) serveEcho(r *resource.Request) {
	q, ok := e.echoQueryOf(r)
	if !ok {
		return
	}
	if string(r.Path) != "/echo" {
		r.Error(message.MethodNotAllowed, "")
		return
	}
	format, given := r.Message.Format(message.ContentFormat)
	if !given {
		format = message.OctetStream
	}
	if _, ok := r.Accepts(format); !ok {
		return
	}
	if q.keep {
		name := q.id
		if name == "" {
			name = echoName(r)
		}
		e.mu.Lock()
		e.kept.put(name, stored{bytes.Clone(r.Body), format, true}, e.clock(), owner(r.Session).addr())
		e.mu.Unlock()
		e.topic.Changed()
	}
	if q.later {
		r.Separate(q.delay)
	}
	body := r.Body
	if q.length >= 0 {
		body = append(bytes.Clone(body[:min(len(body), q.length)]), bytes.Repeat([]byte{'*'}, max(0, q.length-len(body)))...)
	}
	r.Answer(message.Changed, format, body)
}

// echoName is the name of what a client keeps: its identity or, without one, its address.
func echoName(r *resource.Request) string {
	own := owner(r.Session)
	info := own.info()
	if info.Identity != "" {
		return strings.Map(func(c rune) rune {
			if !inPath(c) {
				return '-'
			}
			return c
		}, info.Identity[:min(len(info.Identity), maxEchoName)])
	}
	return own.addr().Addr().Unmap().String()
}

// inPath reports whether a character needs no escape in the path of a link.
func inPath(c rune) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.ContainsRune("-._~:@", c)
}

func (e *extended) echoQueryOf(r *resource.Request) (echoQuery, bool) {
	q := echoQuery{length: -1}
	for _, part := range queries(r) {
		ok := false
		switch part.name {
		case "rlen":
			q.length, ok = numberOf(part.value, 0, maxRlen)
		case "ack":
			q.later, ok = true, true
		case "keep":
			q.keep, ok = true, true
		case "id":
			q.id, ok = part.value, 0 < len(part.value) && len(part.value) <= maxEchoName && strings.IndexFunc(part.value, func(c rune) bool { return !inPath(c) }) < 0
		case "delay":
			var n int
			if n, ok = numberOf(part.value, 1, maxEchoDelay); ok && e.delay {
				q.later, q.delay = true, time.Duration(n)*time.Millisecond
			}
			ok = ok && e.delay
		}
		if !ok {
			r.BadQuery(part.raw, knownEchoQuery)
			return q, false
		}
	}
	return q, true
}

// listEchoes answers with the links of what is kept, or with what is kept under a name.
func (e *extended) listEchoes(r *resource.Request) {
	if !r.NoQuery() {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.kept.expire(e.clock())
	name, below := strings.CutPrefix(string(r.Path), "/echo/")
	if !below {
		if _, ok := r.Accepts(message.LinkFormat); !ok {
			return
		}
		var links []byte
		for i := range e.kept.slots {
			if k := &e.kept.slots[i]; k.exists {
				links = resource.AppendLink(links, "/echo/"+k.name, resource.Attribute{Name: "ct", Value: strconv.Itoa(int(k.format))}, resource.Attribute{Name: "obs"})
			}
		}
		r.Answer(message.Content, message.LinkFormat, links)
		return
	}
	if i, ok := e.kept.entries[name]; ok {
		e.kept.slots[i].answer(r)
		return
	}
	r.Error(message.NotFound, "nothing is kept under this name")
}

// deleteEcho drops what is kept under a name.
func (e *extended) deleteEcho(r *resource.Request) {
	name, below := strings.CutPrefix(string(r.Path), "/echo/")
	if !below {
		r.Error(message.MethodNotAllowed, "")
		return
	}
	e.mu.Lock()
	if i, ok := e.kept.entries[name]; ok {
		e.kept.drop(i)
	}
	e.mu.Unlock()
	e.topic.Changed()
	r.Done(message.Deleted)
}

// put keeps a body under a name.
func (s *echoStore) put(name string, body stored, now time.Time, from netip.AddrPort) {
	s.expire(now)
	if i, ok := s.entries[name]; ok {
		s.drop(i)
	}
	for len(s.entries) >= maxEchoes || s.bytes+len(body.body) > maxEchoBytes {
		oldest, ok := s.order.First()
		if !ok {
			return
		}
		s.drop(oldest)
	}
	i := int32(len(s.slots))
	if n := len(s.free); n > 0 {
		i, s.free = s.free[n-1], s.free[:n-1]
	} else {
		s.slots = append(s.slots, keptEcho{})
	}
	s.slots[i] = keptEcho{name, body, now}
	s.entries[name] = i
	s.bytes += len(body.body)
	s.order.Add(i, evict.SourceOf(from.Addr()))
}

// expire drops what is older than echoLifetime.
func (s *echoStore) expire(now time.Time) {
	for _, i := range s.entries {
		if now.Sub(s.slots[i].at) > echoLifetime {
			s.drop(i)
		}
	}
}

func (s *echoStore) drop(i int32) {
	k := &s.slots[i]
	s.bytes -= len(k.body)
	delete(s.entries, k.name)
	s.order.Remove(i)
	*k = keptEcho{}
	s.free = append(s.free, i)
}
