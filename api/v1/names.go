package v1

import (
	"net/netip"
	"time"
)

// DNSName is what is known about a DNS name.
type DNSName struct {
	Name      string       `json:"name" label:"name"`                                                                                                                                       // as configured
	Addresses []netip.Addr `json:"addresses"`                                                                                                                                               // those of the last valid answer; null: none yet, or the name is gone
	Dropped   int          `json:"dropped,omitempty"`                                                                                                                                       // addresses beyond the bound; absent: none
	Lookups   uint64       `json:"lookups" metric:"weir_dns_lookups_total" help:"Look-ups of a DNS name of the configuration."`                                                             // since the start
	Failures  uint64       `json:"failures" metric:"weir_dns_failures_total" help:"Look-ups of a DNS name that failed."`                                                                    // of those
	Error     string       `json:"error,omitempty"`                                                                                                                                         // of the last look-up; absent: it succeeded
	Changed   time.Time    `json:"changed,omitzero"`                                                                                                                                        // when the addresses last changed; absent: never
	Age       float64      `json:"age_seconds" metric:"weir_dns_answer_age_seconds" help:"Time since the last answer with addresses; before the first answer since the name is looked up."` // seconds since the last answer with addresses; before the first one, since the name is looked up
}

// ResolvedName is what a DNS name of a checked configuration resolves to.
type ResolvedName struct {
	Name      string       `json:"name"`            // as configured, in lower case
	Addresses []netip.Addr `json:"addresses"`       // sorted; null: none
	Error     string       `json:"error,omitempty"` // why there is none; absent: there are addresses
}
