package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/weir-lb/weir/internal/coap/message"
)

// Bounds of a response in blocks.
const (
	maxBlocks = 4096
	maxBody   = 1 << 20 // bytes
)

// follow completes a response that is not whole. It repeats the request with an Echo option, which proves our address to the
// server (RFC 9175 section 2.3), or requests the blocks that follow (RFC 7959 section 2.4, GET only).
func (x *Exchange) follow(ctx context.Context, conn net.Conn, cfg RequestConfig) error {
	var first message.Message
	if err := message.Parse(x.Response, &first); err != nil {
		return err
	}
	if value, ok := first.Option(message.Echo); ok && first.Code == message.Unauthorized {
		cfg.echo = bytes.Clone(value)
		if err := x.again(ctx, conn, cfg); err != nil {
			return err
		}
		if err := message.Parse(x.Response, &first); err != nil {
			return err
		}
	}
	block, ok := first.Uint(message.Block2)
	if !ok || block&8 == 0 || block>>4 != 0 || cfg.Method != message.GET || first.Code.Class() != 2 {
		return nil
	}
	tag, _ := first.Option(message.ETag)
	body, whole := bytes.Clone(first.Payload), x.Response
	for blocks := 1; block&8 != 0; blocks++ {
		if blocks == maxBlocks || len(body) > maxBody || block&7 == 7 {
			return fmt.Errorf("the response is too long: %d bytes in %d blocks so far", len(body), blocks)
		}
		// A server may make blocks smaller as it goes, but each begins where the one before has ended.
		cfg.block, cfg.blockwise = uint32(len(body))>>(4+block&7)<<4|block&7, true
		if err := x.again(ctx, conn, cfg); err != nil {
			return err
		}
		var next message.Message
		if err := message.Parse(x.Response, &next); err != nil {
			return err
		}
		if next.Code != first.Code {
			return nil // an error response, which is shown
		}
		nextTag, _ := next.Option(message.ETag)
		if block, ok = next.Uint(message.Block2); !ok || !bytes.Equal(tag, nextTag) || int(block>>4)<<(4+block&7) != len(body) {
			return errors.New("the resource has changed between two blocks of it; ask again")
		}
		body = append(body, next.Payload...)
		if value, ok := next.Option(message.Echo); ok {
			cfg.echo = bytes.Clone(value)
		}
	}
	var err error
	x.Response, err = joined(whole, body)
	return err
}

// again sends the request of cfg on conn and takes its response for that of x.
func (x *Exchange) again(ctx context.Context, conn net.Conn, cfg RequestConfig) error {
	request, err := buildRequest(x.Target, cfg)
	if err != nil {
		return err
	}
	next := Exchange{Target: x.Target, Request: request}
	if err := next.exchange(ctx, conn, cfg); err != nil {
		return err
	}
	x.Response, x.Retransmissions = next.Response, x.Retransmissions+next.Retransmissions
	return nil
}

// joined is the first block's message with the whole body.
func joined(first, body []byte) ([]byte, error) {
	var m message.Message
	if err := message.Parse(first, &m); err != nil {
		return nil, err
	}
	var b message.Builder
	b.Reset(make([]byte, 0, len(first)+len(body)), m.Type, m.Code, m.ID, m.Token)
	for options := m.Options(); options.Next(); {
		switch options.ID() {
		case message.Block2, message.Size2, message.Echo:
		default:
			b.Option(options.ID(), options.Value())
		}
	}
	b.Payload(body)
	return b.Bytes()
}
