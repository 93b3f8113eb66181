package v1

import (
	"net/netip"
	"time"
)

// DNSName is what is known about a DNS name.
type DNSName struct {
	Name      string       `json:"name"`              // as configured
	Addresses []netip.Addr `json:"addresses"`         // those of the last valid answer; null: none yet, or the name is gone
	Dropped   int          `json:"dropped,omitempty"` // addresses beyond the bound; absent: none
	Lookups   uint64       `json:"lookups"`           // since the start
	Failures  uint64       `json:"failures"`          // of those
	Error     string       `json:"error,omitempty"`   // of the last look-up; absent: it succeeded
	Changed   time.Time    `json:"changed,omitzero"`  // when the addresses last changed; absent: never
}
