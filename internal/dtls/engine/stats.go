package engine

// Stats counts since Open, except Sessions and HalfOpen, which are current.
type Stats struct {
	Sessions, HalfOpen uint64

	Datagrams, RecordsIn, RecordsOut, Requests uint64
	BytesIn, BytesOut                          uint64

	HelloVerifies, Handshakes, HandshakesFailed, UnknownIdentities, Replaced uint64

	BadMACs, Replays, Malformed, UnknownCIDs, UnknownAddress  uint64
	HalfOpenFull, SessionsFull, Evicted, QueueFull, Amplified uint64
	EarlyHeld, EarlyDropped, SendErrors, AddressChanges       uint64
	Alerts, Closed                                            uint64

	Foreign, ForeignUnknown, Injected, Returned, HandedOver uint64
	// KernelDrops are datagrams the sockets' queues had no room for.
	KernelDrops uint64
}
