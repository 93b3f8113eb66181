// Package stream is CoAP over TCP and TLS (RFC 8323): the frame around each message, the signalling messages, and the connection
// of a client. Its server is package streamserver.
//
//	 0               1
//	| Len 4 | TKL 4 | extended length (0, 1, 2 or 4 bytes) | Code | extended TKL | token | options | 0xff payload |
//	                  13: Len-13, 14: Len-269, 15: Len-65805; Len counts options and payload
//
// There is no type and no message id: TCP delivers once and in order. Weir's other CoAP packages work on datagrams, so [Append]
// writes the frame of a datagram of [message.Builder], and [Parse] reads a frame into a [message.Message] of type Non with id 0.
//
//	socket ─► Decoder.Feed ─► Decoder.Next ─► Session.Receive ─► Plain: a request or a response for the caller
//	                                            └─ CSM, Ping, Pong, Release, Abort: handled, with an answer to send
//
// Everything but [Conn] is pure: no socket, no clock, no goroutine. A Decoder holds at most its limit of bytes, and only while a
// message is incomplete; it takes memory as the bytes arrive, not as the length in the header announces.
//
//	c, err := stream.Dial(ctx, "127.0.0.1:5683", nil, stream.Settings{})
//	err = c.Send(datagram)            // what message.Builder wrote
//	err = c.Receive(&m)               // the next request, response or Pong
//
// Limits: tokens and options as in package message; messages up to [MaxMessage] bytes.
package stream
