// Package kernelrelay relays ChannelData of UDP clients in the kernel (RFC 8656, section 12): programs on the XDP or TCX hook
// take the channel header off or put it on, rewrite addresses and send the packet on, without the gateway's process.
//
//	client ─► listener: channel number, data ─► relay ─► peer
//	client ◄─ listener: channel number, data ◄─ relay ◄─ peer
//
// The gateway decides which channels there are (Add, Permit, Remove) and reads what they carried (Counters). Every packet that
// the programs do not understand goes on to the sockets, as if nothing were attached: Close changes nothing but the cost.
//
// # Limits
//
// MaxChannels channels, in one table of two entries each; one that does not fit stays in user space. No fragments, no link-local
// and multicast addresses, no TCP. Little-endian 64-bit machines; Linux 6.6 or newer for TCX.
//
//	r, err := kernelrelay.Open(kernelrelay.Config{Interfaces: []string{"eth0"}})
//	id, err := r.Add(channel)
package kernelrelay
