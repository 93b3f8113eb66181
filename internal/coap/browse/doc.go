// Package browse is the full-screen browser of `weir coap browse`: the resources of a server, what they hold, and a log of messages.
//
//	┌ resources ┐┌ content ─────────────────────────────┐
//	│> /obs *  ││ 2.05 CONTENT  text  12 ms             │
//	│  /test   ││ …                                     │
//	└───────────┘└──────────────────────────────────────┘
//	 12:00:01 GET /obs 2.05 12 ms, 1 message
//	 keys
//
// All requests run outside of the goroutine that draws; the context of Run ends them.
package browse
