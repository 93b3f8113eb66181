// Package check runs the list of the ETSI CoAP plugtests (CORE, LINK, BLOCK, OBS and DTLS) as a client against any server.
//
//	Cases ─► Run ─► conversation ─► client.RawLink (UDP, DTLS, TCP, TLS)
//	                └ request + wants ─► answer, or failure, or lack
//
// A [Case] is one row of a table: id, title, the resource that the server must have, and a function. The function sends messages
// that it builds itself and reads every message that comes, so that message ids, tokens, types, repeated messages and messages that
// are left without an acknowledgement are under its control. Each check of an answer has a text and the section that demands it;
// a failure reports what was sent, what was expected and what came.
//
// A case passes, fails, or is inconclusive: the server lacks the resource or the method, or did nothing that could be judged.
// The list names no fault by itself: where it asks for more than an RFC does, the reason says so.
//
// References: ETSI CoAP plugtest 4 (2014) for the ids; RFC 7252, 7641, 7959, 6690, 6347, 7250 for what is checked.
// Bounds: bodies of 64 KiB, 4,096 blocks, 256 lines of trace for each case.
package check
