package check

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/weir-lb/weir/internal/coap/client"
	"github.com/weir-lb/weir/internal/coap/message"
)

// Bounds of a transfer in blocks.
const (
	maxBody   = 1 << 16
	maxBlocks = 4096
)

// block is a Block1 or Block2 option (RFC 7959 section 2.2).
type block struct {
	number uint32
	more   bool
	szx    uint32
}

func blockOf(value []byte) block {
	n, _ := message.Uint(value)
	return block{n >> 4, n&8 != 0, n & 7}
}

// of returns the block option of an answer.
func of(a *answer, id message.OptionID) (block, bool) {
	value, ok := a.Option(id)
	return blockOf(value), ok && len(value) <= 3
}

func (b block) size() int { return 16 << b.szx }

func (b block) m() int {
	if b.more {
		return 1
	}
	return 0
}

func (b block) option(id message.OptionID) client.Option {
	return client.UintOption(id, b.number<<4|uint32(b.m())<<3|b.szx)
}

// body is the text that the cases send in blocks: 1280 bytes, each line of which is another one.
func body() []byte {
	var b strings.Builder
	for i := range 20 {
		fmt.Fprintf(&b, "line %2d of what is sent in blocks, each of them of 64 bytes. --\n", i)
	}
	return []byte(b.String())
}

// blockIs wants a block option with these values; a size of at most szx where smaller is true. The payload of a Block2 with more to
// come fills the block.
func blockIs(id message.OptionID, b block, smaller bool) want {
	size := fmt.Sprintf("SZX %d", b.szx)
	if smaller {
		size = fmt.Sprintf("SZX of at most %d", b.szx)
	}
	full := ""
	if id == message.Block2 {
		full = " and a payload that fills the block, if more is to come"
	}
	return want{fmt.Sprintf("a %s option with NUM %d, %s%s", id, b.number, size, full), "RFC 7959 sections 2.2 to 2.4", func(_ *sent, a *answer) bool {
		got, ok := of(a, id)
		return ok && got.number == b.number && got.szx < 7 && (got.szx == b.szx || smaller && got.szx < b.szx) &&
			(id != message.Block2 || len(a.Payload) == got.size() || !got.more && len(a.Payload) <= got.size())
	}}
}

// moreIs wants the M bit.
func moreIs(id message.OptionID, more bool) want {
	return want{fmt.Sprintf("a %s option with M %d", id, block{more: more}.m()), "RFC 7959 section 2.2", func(_ *sent, a *answer) bool {
		got, ok := of(a, id)
		return ok && got.more == more
	}}
}

// whole gets a representation, in blocks where the server makes some. first is the answer to the first request.
func (c *conversation) whole(r request, wants ...want) ([]byte, *answer, error) {
	first, err := c.ask(r, wants...)
	if err != nil {
		return nil, nil, err
	}
	b, blockwise := of(first, message.Block2)
	if !blockwise {
		return first.Payload, first, nil
	}
	rest, err := c.rest(r, first, b, wants...)
	return rest, first, err
}

// rest gets the blocks behind the first one with requests like r, and returns the whole body.
func (c *conversation) rest(r request, first *answer, b block, wants ...want) ([]byte, error) {
	body := bytes.Clone(first.Payload)
	r.options, r.payload, r.token, r.needed = without(r.options), nil, nil, false
	given := r.options
	etag, _ := first.Option(message.ETag)
	for count := 1; b.more; count++ {
		if count == maxBlocks || len(body) > maxBody {
			return nil, &failure{"requests for blocks", fmt.Sprintf("at most %d bytes in %d blocks", maxBody, maxBlocks), fmt.Sprintf("%d bytes in %d blocks", len(body), count), "bound of this checker"}
		}
		next := block{number: uint32(len(body) / b.size()), szx: b.szx}
		r.options = append(given[:len(given):len(given)], next.option(message.Block2))
		a, err := c.ask(r, append(wants[:len(wants):len(wants)], blockIs(message.Block2, next, false), sameETag(etag))...)
		if err != nil {
			return nil, err
		}
		b, _ = of(a, message.Block2)
		body = append(body, a.Payload...)
	}
	return body, nil
}

// sameETag wants the blocks to be of one representation.
func sameETag(value []byte) want {
	return want{fmt.Sprintf("the ETag %x of the first block", value), "RFC 7959 section 2.4", func(_ *sent, a *answer) bool {
		got, _ := a.Option(message.ETag)
		return bytes.Equal(got, value)
	}}
}

// without drops the options of block-wise transfer and the registration of an observation.
func without(options []client.Option) (others []client.Option) {
	for _, o := range options {
		if o.ID != message.Block1 && o.ID != message.Block2 && o.ID != message.Observe {
			others = append(others, o)
		}
	}
	return others
}

// upload sends a body in blocks of 64 bytes, or smaller ones if the server wants that, and returns the last answer and the Block1
// option that it had to repeat. Between, the server answers 2.31, or, where stateless is true, a success with M 0.
func (c *conversation) upload(r request, body []byte, stateless bool, wants ...want) (*answer, error) {
	given := r.options
	szx := uint32(2)
	for start := 0; ; {
		b := block{uint32(start / (16 << szx)), false, szx}
		end := min(start+b.size(), len(body))
		b.more = end < len(body)
		r.options, r.payload, r.token = append(given[:len(given):len(given)], b.option(message.Block1)), body[start:end], nil
		if !b.more {
			return c.ask(r, append(wants[:len(wants):len(wants)], blockIs(message.Block1, b, false), moreIs(message.Block1, false))...)
		}
		a, err := c.ask(r, continues(stateless), blockIs(message.Block1, b, start == 0))
		if err != nil {
			return nil, err
		}
		got, _ := of(a, message.Block1)
		start, szx, r.needed = start+got.size(), got.szx, false // where a smaller block was taken, its rest comes again
	}
}

// continues wants the answer to a block that is not the last one.
func continues(stateless bool) want {
	text := "code 2.31 CONTINUE with M 1 in Block1"
	if stateless {
		text += ", or 2.04 CHANGED with M 0"
	}
	return want{text, "RFC 7959 sections 2.3 and 2.9.1", func(_ *sent, a *answer) bool {
		b, ok := of(a, message.Block1)
		return ok && (a.Code == message.Continue && b.more || stateless && a.Code == message.Changed && !b.more)
	}}
}

// blockGet is TD_COAP_BLOCK_01 and 06: the client names the size in its first request.
func blockGet(szx uint32) func(*conversation) error {
	return func(c *conversation) error {
		if err := c.provide("/large", body()); err != nil {
			return err
		}
		r := request{code: message.GET, path: "/large", needed: true, options: []client.Option{block{szx: szx}.option(message.Block2)}}
		got, first, err := c.whole(r, code(message.Content), blocksOf(szx))
		if err != nil {
			return err
		}
		s := &sent{request: r, text: fmt.Sprintf("GET %s with Block2 0/0/%d", c.cfg.pathOf("/large"), 16<<szx)}
		if err := c.check(s, first, formatOfPayload); err != nil {
			return err
		}
		if b, _ := of(first, message.Block2); !b.more {
			return lackf("%s has only %d bytes: one block holds it", c.cfg.pathOf("/large"), len(got))
		}
		return c.sameAs(got, szx)
	}
}

// blocksOf wants blocks of at most a size in each answer.
func blocksOf(szx uint32) want {
	return want{fmt.Sprintf("a Block2 option with SZX of at most %d, and a payload that fills the block, if more is to come", szx), "RFC 7959 section 2.4", func(_ *sent, a *answer) bool {
		b, ok := of(a, message.Block2)
		return ok && b.szx <= szx && (len(a.Payload) == b.size() || !b.more && len(a.Payload) <= b.size())
	}}
}

// sameAs compares what came with what comes in blocks of another size: no gap, right order.
func (c *conversation) sameAs(got []byte, szx uint32) error {
	other := uint32(1)
	if szx == other {
		other = 2
	}
	r := request{code: message.GET, path: "/large", options: []client.Option{block{szx: other}.option(message.Block2)}}
	again, first, err := c.whole(r, code(message.Content))
	if err != nil {
		return err
	}
	if bytes.Equal(got, again) {
		return nil
	}
	return &failure{
		fmt.Sprintf("requests for blocks of %d and %d bytes", 16<<szx, 16<<other), "the same representation both times",
		fmt.Sprintf("%d and %d bytes, which differ; the second time beginning with %s", len(got), len(again), describe(&first.Message)), "RFC 7959 section 2.4",
	}
}

// blockGetLate is TD_COAP_BLOCK_02: the server makes blocks unasked, and the client goes on with smaller ones.
func blockGetLate(c *conversation) error {
	if err := c.provide("/large", body()); err != nil {
		return err
	}
	r := request{code: message.GET, path: "/large", needed: true}
	first, err := c.ask(r, code(message.Content))
	if err != nil {
		return err
	}
	b, ok := of(first, message.Block2)
	if !ok && (c.target.Stream || len(first.Payload) <= 1024) {
		return lackf("%s has only %d bytes: the server sends them in one message", c.cfg.pathOf("/large"), len(first.Payload))
	}
	s := &sent{request: r, text: "GET " + c.cfg.pathOf("/large") + " without Block2"}
	if err := c.check(s, first, formatOfPayload, blockIs(message.Block2, block{szx: 6}, true), moreIs(message.Block2, true)); err != nil {
		return err
	}
	if b.szx > 0 {
		b.szx--
	}
	got, err := c.rest(r, first, b, code(message.Content))
	if err != nil {
		return err
	}
	return c.sameAs(got, b.szx)
}

// blockPut is TD_COAP_BLOCK_03.
func blockPut(c *conversation) error {
	r := request{code: message.PUT, path: "/large-update", needed: true, options: []client.Option{client.UintOption(message.ContentFormat, 0)}}
	if _, err := c.upload(r, body(), true, code(message.Changed, message.Created)); err != nil {
		return err
	}
	return c.holds("/large-update", body())
}

// holds wants a resource to have a representation.
func (c *conversation) holds(path string, body []byte) error {
	r := request{code: message.GET, path: path}
	got, first, err := c.whole(r, code(message.Content))
	if err != nil || bytes.Equal(got, body) {
		return err
	}
	return &failure{"GET " + path, fmt.Sprintf("the %d bytes that were sent", len(body)), fmt.Sprintf("%d other bytes, beginning with %s", len(got), describe(&first.Message)), "RFC 7959 section 2.5"}
}

// blockCreate is TD_COAP_BLOCK_04.
func blockCreate(c *conversation) error {
	r := request{code: message.POST, path: "/large-create", needed: true, options: []client.Option{client.UintOption(message.ContentFormat, 0)}}
	a, err := c.upload(r, body(), false, code(message.Created), want{"two Location-Path options, the first of them large-create, without a slash", "ETSI list; RFC 7252 section 5.10.7", func(_ *sent, a *answer) bool {
		path := all(&a.Message, message.LocationPath)
		first := strings.Trim(c.cfg.pathOf("/large-create"), "/")
		return len(path) == 2 && path[0] == first && path[1] != "" && !strings.Contains(path[1], "/")
	}})
	if err != nil {
		return err
	}
	path := "/" + strings.Join(all(&a.Message, message.LocationPath), "/")
	if err := c.holds(path, body()); err != nil {
		return err
	}
	_, err = c.ask(request{code: message.DELETE, path: path}) // to tidy up: the list does not require it
	return err
}

// blockPost is TD_COAP_BLOCK_05: a body in blocks both ways.
func blockPost(c *conversation) error {
	r := request{code: message.POST, path: "/large-post", needed: true, options: []client.Option{client.UintOption(message.ContentFormat, 0)}}
	first, err := c.upload(r, body(), false, code(message.Changed))
	if err != nil {
		return err
	}
	b, ok := of(first, message.Block2)
	if !ok && (c.target.Stream || len(first.Payload) <= 1024) {
		return lackf("the response of %s has only %d bytes: it is not in blocks", c.cfg.pathOf("/large-post"), len(first.Payload))
	}
	s := &sent{request: r, text: "the last block of POST " + c.cfg.pathOf("/large-post")}
	if err := c.check(s, first, formatOfPayload, blockIs(message.Block2, block{szx: 6}, true), moreIs(message.Block2, true)); err != nil {
		return err
	}
	_, err = c.rest(r, first, b, code(message.Changed))
	return err
}
