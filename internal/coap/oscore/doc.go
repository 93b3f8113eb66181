// Package oscore protects CoAP messages end to end (Object Security for Constrained RESTful Environments, RFC 8613): a message is
// encrypted above the message layer, so that proxies, retransmissions and NATs do not disturb it.
//
//	request  ─► class E options, code, payload ─► AES-CCM-16-64-128 ─► POST or FETCH with the OSCORE option and the ciphertext
//	response ─► likewise, bound to its request by request_kid and request_piv ─► 2.04 or 2.05
//
// A [Context] holds the keys that two endpoints share. A [Table] finds the context of a request by its kid and kid context. A [Codec]
// protects and opens messages without allocating; a [Binding] is what a response must know of its request. [Server] is the layer of
// a server between exchange.Endpoint and its handler. [Client] is the one of a client's connection.
//
// Sender sequence numbers come from a [Store], which reserves them on disk before they are used, so that no restart uses a nonce
// twice (Appendix B.1.1). A context whose replay window was lost by a restart asks for a request with an Echo option before it
// executes one (Appendix B.1.2). A server lets clients whose context is lost agree on a new one, where it is Renewable (Appendix B.2).
//
// Bounds: [MaxContexts] of a Table, a replay window of 64 numbers, messages as long as the buffer of the Codec. Nothing is stored
// for a message that does not verify. Supported are HKDF with SHA-256 and AES-CCM-16-64-128, which every implementation has; not
// supported are group communication, and Appendix B.2 as a client.
package oscore
