package node

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/weir-lb/weir/internal/coap/message"
)

// getBlocks fetches a resource as Californium's client does, which takes a new message id and a new token of 8 bytes for each
// block, and gives up a representation whose entity tag changes between two blocks (RFC 7959 section 2.4).
func (c *client) getBlocks(q query) error {
	var tag []byte
	for number := 0; number < 200; number++ {
		c.token = fmt.Sprintf("token%03d", number)
		m := c.exchangeRequest(q, message.Con, message.GET)
		if m.Code.Class() != 2 {
			return nil // not for GET, or only with other options
		}
		value, ok := m.Uint(message.Block2)
		if !ok && number == 0 {
			return nil
		}
		now, _ := m.Option(message.ETag)
		if number > 0 && string(now) != string(tag) {
			return fmt.Errorf("the entity tag changes from %x to %x at block %d", tag, now, number)
		}
		if tag = slices.Clone(now); value&8 == 0 {
			return nil
		}
		q.block = int(value>>4+1)<<4 | int(value&7)
	}
	return fmt.Errorf("more than 200 blocks")
}

// The blocks of every answer fit together, although each is made for another request: for addresses that have proven
// themselves and for those that get small blocks, and in blocks as small as a client may request.
func TestBlocksOfEveryResourceAgree(t *testing.T) {
	for _, from := range []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:40000"), {}} {
		for _, block := range []int{-1, 0, 2} {
			o := newOffline(t, false, func(c *Config) { c.Plugtest = true })
			c := o.client(false)
			for _, path := range o.listener.tree.Paths() {
				for _, queries := range [][]string{nil, {"first=1", "second=2", "third=3", "fourth=4", "fifth=5"}} {
					if c.at = o.address(); from.IsValid() {
						c.at = netip.AddrPortFrom(from.Addr(), c.at.Port()+uint16(o.addresses))
					}
					if err := c.getBlocks(query{path: path, queries: queries, accept: -1, block: block}); err != nil {
						t.Errorf("GET %s with %d queries from %s, Block2 %d: %v", path, len(queries), c.at, block, err)
					}
				}
			}
		}
	}
}

// A client with tokens of 8 bytes, as Californium's, gets what the plugtest resources say of a request in one message.
func TestDescriptionsFitOneMessage(t *testing.T) {
	o := newOffline(t, false, func(c *Config) { c.Plugtest = true })
	c := o.client(false)
	c.at, c.token = netip.MustParseAddrPort("127.0.0.1:40000"), "8 bytes."
	for _, q := range []query{{path: "/test"}, {path: "/seg1/seg2/seg3"}, {path: "/query", queries: []string{"first=1", "second=ééééééééééééééééé"}}, {path: "/validate"}, {path: "/multi-format"}} {
		q.accept, q.block = -1, -1
		m := c.exchangeRequest(q, message.Con, message.GET)
		if _, blocks := m.Option(message.Block2); blocks || m.Code != message.Content || len(m.Payload) == 0 || len(m.Payload) > maxText || !utf8.Valid(m.Payload) {
			t.Errorf("%s: %s, %d bytes, in blocks %t: %q", q.path, m.Code, len(m.Payload), blocks, m.Payload)
		}
	}
}

// A client that knows the entity tag of a description gets 2.03 (RFC 7252 section 5.10.6.2).
func TestDescriptionIsValidated(t *testing.T) {
	o := newOffline(t, false, func(c *Config) { c.Plugtest = true })
	c := o.client(false)
	c.at = netip.MustParseAddrPort("127.0.0.1:40000")
	first := c.exchangeRequest(query{path: "/validate", accept: -1, block: -1}, message.Con, message.GET)
	tag, ok := first.Option(message.ETag)
	if !ok {
		t.Fatalf("%s without an entity tag", first.Code)
	}
	var b message.Builder
	b.Reset(make([]byte, 0, 64), message.Con, message.GET, 4711, []byte("tk"))
	b.Option(message.ETag, tag)
	b.Text(message.URIPath, "validate")
	wire, err := b.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	if all := c.messages(o.send(wire, c.at)); len(all) != 1 || all[0].Code != message.Valid || len(all[0].Payload) != 0 {
		t.Errorf("%+v, want 2.03 without a payload", all)
	}
}
