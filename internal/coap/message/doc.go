// Package message is the CoAP codec: it reads a datagram in place and builds one into a given buffer, without
// allocating (RFC 7252 section 3, extended token lengths of RFC 8974).
//
//	 0                   1                   2                   3
//	|Ver| T |  TKL  |      Code     |          Message ID           |
//	| extended TKL (0, 1 or 2 bytes) | token (0..MaxToken) ...
//	| options: 4 bit delta, 4 bit length, extensions, value ...
//	|1 1 1 1 1 1 1 1| payload ...
//
// [Parse] checks the whole message once: afterwards every iterator and getter works on bytes known to be well formed.
// Slices of a [Message] alias the datagram and are valid as long as it is.
//
//	var m message.Message
//	if err := message.Parse(datagram, &m); err != nil { ... }
//	for options := m.Options(); options.Next(); { use(options.ID(), options.Value()) }
//
//	var b message.Builder
//	b.Reset(out, message.Ack, message.Content, m.ID, m.Token)
//	b.Uint(message.ContentFormat, uint32(message.Text))
//	b.Payload([]byte("hello"))
//	reply, err := b.Bytes()
//
// Limits: [MaxToken] bytes of token, [MaxOptions] options, datagrams up to 65,535 bytes. The header of CoAP over TCP
// (RFC 8323) is in package stream; [ParseStream] reads what follows it.
package message
