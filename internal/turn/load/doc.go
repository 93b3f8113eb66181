// Package load is a load generator and sink for TURN servers. It runs many clients with an allocation each, sends datagrams with
// a sequence number and the time, and reports what happened to each of them.
//
// It hides the TURN client (Allocate, ChannelBind, Refresh in time: RFC 8656 sections 7 to 12, over UDP), the pacing of a
// sender in batches, and the arithmetic of loss, reordering, jitter and one-way latency.
//
//	client 0 ─ ChannelData ─┐                      ┌─ relay 0 ─┐
//	client 1 ─ ChannelData ─┼─► TURN server ───────┼─ relay 1 ─┼─► sink        Up
//	…                       ┘ ◄────────────────────┘ ◄─────────┘               Down
//	client i ─ UDP ─► the sink itself, or a turncat listener                   plain
//
// Every datagram begins with a header of 32 bytes, big endian:
//
//	0       4      6      8            16           24           32
//	| magic | conn | flags| run number | sequence   | sent at ns | …
//
// The sink and the clients are one process, so there is one monotonic clock and latency is truly one-way. With
// [Config.Peer] the far end is an echo server elsewhere: then latency is half of the round trip, and [Report.Latency] says so.
//
// One goroutine sends, one receives; neither allocates per datagram. Up to 16,384 clients.
//
//	l, err := load.Open(ctx, load.Config{Server: server, User: "user1", Password: "passwd1", Clients: 5, Size: 1000})
//	defer l.Close()
//	report, err := l.Run(ctx, load.Phase{Rate: 20000, Duration: 2 * time.Second})
//	fmt.Println(report.Up.Sum.Lost, report.Up.Sum.Sent)
package load
