// Package exchange is the CoAP message layer and its request/response matching (RFC 7252 sections 4 and 5): confirmable messages
// with exponential back-off, acknowledgements, resets, de-duplication, piggybacked and separate responses, pings. Client and
// server are the same code: a [Session] is one peer, an [Endpoint] serves all sessions of one worker.
//
//	datagram in ─► Endpoint.Receive ─► request  ─► Handler.Serve ─► Reply ─► datagram out (returned, piggybacked)
//	                    │                                             └─ Separate: empty ACK out, response by Sender later
//	                    ├─► response, ACK, RST ─► Events.Response / Events.Failed of a request sent by Endpoint.Send
//	                    └─► duplicate ─► the stored answer, or the safe request is executed again
//	Endpoint.ReceiveMulticast ─► a request to a group, answered at a random time of its leisure
//	Endpoint.Notify ─► a response outside of an exchange (RFC 7641), whose end Config.Notified reports
//	Endpoint.Tick(now) ─► retransmissions, delayed responses, give-ups ─► Sender
//
// Nothing here has a clock, a socket, a lock or a goroutine: time comes in as now, a monotonic offset from any start, and one
// goroutine at a time may use an Endpoint and its Sessions. Receive and Send allocate nothing once a session's ring exists.
//
// Bounds, each counted in [Counters] when it is reached: [Ring] message ids remembered per session; one circular log of
// stored responses per endpoint, whose oldest are overwritten; Config.MaxPending confirmable messages awaiting
// acknowledgement, of them [PerSession] separate responses of one session and half of them to addresses that have not proven
// themselves.
package exchange
