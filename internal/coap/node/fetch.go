package node

import (
	"encoding/binary"

	"github.com/weir-lb/weir/internal/coap/exchange"
	"github.com/weir-lb/weir/internal/coap/message"
)

// maxFetched bounds what is fetched of one representation at a client, in bytes.
const maxFetched = 64 << 10

// remote is a resource of a client that the server requests.
type remote struct{ path, queries []string }

// token returns a token for a request to the client, which no other one of this session has.
func (own *session) token() []byte {
	own.requested++
	return binary.BigEndian.AppendUint32([]byte{'r'}, own.requested)
}

// get sends a GET to a client, confirmable over UDP and DTLS. observe and block are the values of these options; negative: none.
func (c *core) get(own *session, r *remote, token []byte, observe, block int64) (exchange.ID, error) {
	kind := message.Con
	if own.conn != nil {
		kind = message.Non
	}
	var b message.Builder
	b.Reset(make([]byte, 0, 600), kind, message.GET, c.endpoint.NextID(&own.Session.Session), token)
	if observe >= 0 {
		b.Uint(message.Observe, uint32(observe)) //nolint:gosec // 0 or 1
	}
	for _, segment := range r.path {
		b.Text(message.URIPath, segment)
	}
	for _, q := range r.queries {
		b.Text(message.URIQuery, q)
	}
	if block >= 0 {
		b.Uint(message.Block2, uint32(block)) //nolint:gosec // three bytes
	}
	datagram, err := b.Bytes()
	if err != nil {
		return 0, err
	}
	return c.endpoint.Send(&own.Session.Session, datagram, c.now)
}

// nextBlock returns the Block2 option that requests what comes behind m (RFC 7959 section 2.4), or -1 if that is nothing, or too long. With
// BERT a message has several blocks of 1024 bytes (RFC 8323 section 6).
func nextBlock(m *message.Message) int64 {
	block, ok := m.Uint(message.Block2)
	if !ok || block&8 == 0 || m.Code.Class() != 2 {
		return -1
	}
	size, next := 16<<(block&7), int(block>>4)+1
	if block&7 == 7 {
		size, next = 1024, int(block>>4)+max(1, len(m.Payload)/1024)
	}
	if next*size >= maxFetched {
		return -1
	}
	return int64(next)<<4 | int64(block&7)
}

// fetch requests the next block of a representation from an observed client.
func (c *core) fetch(i int32) {
	w := c.watches.slots[i]
	block := w.block
	w.block = -1
	if block >= 0 {
		w.rest, _ = c.get(w.own, &w.remote, w.own.token(), -1, block) // 0 if too many messages are pending: the next notification counts
		c.awaken()
	}
}

// fetchLater has Tick request what follows m, after the acknowledgement of m. Behind the last block a notification counts.
func (c *core) fetchLater(i int32, m *message.Message, notification bool) bool {
	w := c.watches.slots[i]
	c.dropRest(w)
	if w.block, w.counts = nextBlock(m), notification; w.block < 0 {
		return false
	}
	c.watches.due.Set(i, c.now)
	c.wakeAt(c.now)
	return true
}

// dropRest ends the fetching of a representation, for instance because there is a newer one.
func (c *core) dropRest(w *watch) {
	if w.rest != 0 {
		c.endpoint.Cancel(w.rest)
	}
	w.rest, w.block = 0, -1
}

// fetching returns the observation for which the request id fetches a block, or -1. own may be nil.
func (c *core) fetching(own *session, id exchange.ID) int32 {
	if own != nil {
		for _, i := range own.watched {
			if c.watches.slots[i].rest == id {
				return i
			}
		}
	}
	return -1
}

// fetched takes a further block of an observed resource.
func (c *core) fetched(own *session, id exchange.ID, m *message.Message) {
	i := c.fetching(own, id)
	if i < 0 {
		return
	}
	w := c.watches.slots[i]
	w.rest, w.block = 0, nextBlock(m)
	switch {
	case w.block >= 0:
		c.fetch(i)
	case w.counts:
		c.notified(i)
	}
}
