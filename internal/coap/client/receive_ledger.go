package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/weir-lb/weir/internal/coap/message"
)

// Bounds of what a Ledger keeps.
const (
	// MaxBuckets is how many buckets of history there are; beyond it each is twice as long as before.
	MaxBuckets = 1440
	maxOpen    = 4096 // requests whose fate is not known
	maxHistory = 256  // requests in one answer of a server
)

// ReceiveCounts count requests of a receive test. Sent is the sum of the others and of those whose fate is not known yet.
type ReceiveCounts struct {
	Sent          uint64 `json:"sent"`
	Answered      uint64 `json:"answered"`
	LostRequests  uint64 `json:"lost_requests"`  // the server never got it
	LostResponses uint64 `json:"lost_responses"` // the server got it, and no response came back in time
	Unknown       uint64 `json:"unknown"`        // no response, and the server's history does not reach back to it, or it was restarted
}

// ReceiveBucket is a part of the history.
type ReceiveBucket struct {
	Start time.Time `json:"start"`
	ReceiveCounts
	RTTSum float64 `json:"rtt_sum_ms"` // of the answered
	RTTMax float64 `json:"rtt_max_ms"`
}

// openRequest is a request whose fate is not known.
type openRequest struct {
	ID      string    `json:"id"`
	Sent    time.Time `json:"sent"`
	Arrived bool      `json:"arrived,omitempty"` // a history has it
	Absent  bool      `json:"absent,omitempty"`  // a history that reaches back to it does not
	Failed  bool      `json:"failed,omitempty"`  // the wait for its response is over
}

// Ledger is the state of a receive test: which requests and responses were lost, in all and over time. It is bounded, and its JSON
// is what a test keeps on disk between two runs. Not safe for concurrent use.
type Ledger struct {
	Device    string          `json:"device"` // names this client at the server
	Totals    ReceiveCounts   `json:"totals"`
	Length    time.Duration   `json:"bucket_ns"` // of a bucket
	Buckets   []ReceiveBucket `json:"buckets"`   // without those in which nothing was sent, the oldest first
	Open      []openRequest   `json:"open"`      // the oldest first
	Start     int64           `json:"server_start_ms"`
	Restarts  uint64          `json:"server_restarts"`
	Addresses uint64          `json:"address_changes"` // of this client, as the server has seen it
	Address   string          `json:"address"`         // the latest
}

// History is what a server knows of a device: the newest requests first.
type History struct {
	Start    int64 // of the server, in milliseconds of its clock
	Whole    bool  // nothing was left out for want of room
	Requests []HistoryEntry
}

// HistoryEntry is one request that a server got.
type HistoryEntry struct {
	ID      string
	Time    int64  // when it came, in milliseconds of the server's clock
	Address string // from where, if the server reports it
}

// NewLedger makes a Ledger with buckets of length.
func NewLedger(device string, length time.Duration) *Ledger {
	return &Ledger{Device: device, Length: length}
}

// Validate refuses a Ledger that was not written by this program.
func (l *Ledger) Validate() error {
	if l.Device == "" || len(l.Device) > 128 || l.Length <= 0 || len(l.Buckets) > MaxBuckets || len(l.Open) > maxOpen {
		return errors.New("it is not the state of a receive test")
	}
	return nil
}

// Send notes a request.
func (l *Ledger) Send(id string, at time.Time) {
	if len(l.Open) == maxOpen {
		l.count(&l.Open[0], func(c *ReceiveCounts) { c.Unknown++ })
		l.Open = l.Open[1:]
	}
	l.Open = append(l.Open, openRequest{ID: id, Sent: at})
	l.count(&openRequest{Sent: at}, func(c *ReceiveCounts) { c.Sent++ })
}

// Answer notes the response to a request and what it reports of earlier ones.
func (l *Ledger) Answer(id string, rtt time.Duration, h *History) {
	i := slices.IndexFunc(l.Open, func(r openRequest) bool { return r.ID == id })
	if i < 0 || l.Open[i].Failed { // too late: it counts as lost, whatever came
		l.learn(h)
		return
	}
	sent := l.Open[i]
	l.Open = slices.Delete(l.Open, i, i+1)
	l.count(&sent, func(c *ReceiveCounts) { c.Answered++ })
	if b := l.bucket(sent.Sent); b != nil {
		ms := float64(rtt) / float64(time.Millisecond)
		b.RTTSum += ms
		b.RTTMax = max(b.RTTMax, ms)
	}
	l.learn(h)
}

// Fail notes that the wait for a response is over.
func (l *Ledger) Fail(id string) {
	for i := range l.Open {
		if l.Open[i].ID == id {
			l.Open[i].Failed = true
		}
	}
	l.resolve()
}

// learn takes what a history reports of the requests whose fate is open.
func (l *Ledger) learn(h *History) {
	if h == nil {
		return
	}
	if l.Start != 0 && h.Start != l.Start { // what it knew is gone
		l.Restarts++
		l.Open = slices.DeleteFunc(l.Open, func(r openRequest) bool {
			if r.Failed && !r.Arrived {
				l.count(&r, func(c *ReceiveCounts) { c.Unknown++ })
			}
			return r.Failed && !r.Arrived
		})
	}
	l.Start = h.Start
	if len(h.Requests) == 0 {
		return
	}
	if a := h.Requests[0].Address; a != "" && a != l.Address {
		if l.Address != "" {
			l.Addresses++
		}
		l.Address = a
	}
	known := make(map[string]bool, len(h.Requests))
	for _, r := range h.Requests {
		known[r.ID] = true
	}
	newest, oldest := h.Requests[0].ID, h.Requests[len(h.Requests)-1].ID
	for i := range l.Open {
		r := &l.Open[i]
		switch {
		case known[r.ID]:
			r.Arrived = true
		case r.ID < newest && (h.Whole || r.ID > oldest):
			r.Absent = true
		}
	}
	l.resolve()
	if !h.Whole {
		l.forget(oldest)
	}
}

// Californium's server and Weir's keep fullHistory requests for each device, and cut what does not fit the length requested. A
// history that is shorter than both, by entryRoom bytes, is a whole one.
const (
	fullHistory   = 24
	historyLength = 1000
	entryRoom     = 130
)

// forget gives up the requests that no history can report any more.
func (l *Ledger) forget(oldest string) {
	l.Open = slices.DeleteFunc(l.Open, func(r openRequest) bool {
		lost := r.Failed && !r.Arrived && !r.Absent && r.ID < oldest
		if lost {
			l.count(&r, func(c *ReceiveCounts) { c.Unknown++ })
		}
		return lost
	})
}

// resolve counts the failed requests that a history has reported.
func (l *Ledger) resolve() {
	l.Open = slices.DeleteFunc(l.Open, func(r openRequest) bool {
		switch {
		case !r.Failed || !r.Arrived && !r.Absent:
			return false
		case r.Arrived:
			l.count(&r, func(c *ReceiveCounts) { c.LostResponses++ })
		default:
			l.count(&r, func(c *ReceiveCounts) { c.LostRequests++ })
		}
		return true
	})
}

// count counts in the totals and in the bucket of the time a request was sent.
func (l *Ledger) count(r *openRequest, count func(*ReceiveCounts)) {
	count(&l.Totals)
	if b := l.bucket(r.Sent); b != nil {
		count(&b.ReceiveCounts)
	}
}

// bucket returns the bucket of a time, which it makes where it is the newest; nil: it is no longer there.
func (l *Ledger) bucket(at time.Time) *ReceiveBucket {
	start := at.Truncate(l.Length)
	for i := len(l.Buckets) - 1; i >= 0 && !l.Buckets[i].Start.Before(start); i-- {
		if l.Buckets[i].Start.Equal(start) {
			return &l.Buckets[i]
		}
	}
	if n := len(l.Buckets); n > 0 && !l.Buckets[n-1].Start.Before(start) {
		return nil
	}
	if len(l.Buckets) == MaxBuckets {
		l.Length *= 2
		l.merge()
		return l.bucket(at)
	}
	l.Buckets = append(l.Buckets, ReceiveBucket{Start: start})
	return &l.Buckets[len(l.Buckets)-1]
}

// merge joins the buckets that are one with the present length.
func (l *Ledger) merge() {
	merged := l.Buckets[:0]
	for _, b := range l.Buckets {
		b.Start = b.Start.Truncate(l.Length)
		if n := len(merged); n > 0 && merged[n-1].Start.Equal(b.Start) {
			m := &merged[n-1]
			m.Sent += b.Sent
			m.Answered += b.Answered
			m.LostRequests += b.LostRequests
			m.LostResponses += b.LostResponses
			m.Unknown += b.Unknown
			m.RTTSum += b.RTTSum
			m.RTTMax = max(m.RTTMax, b.RTTMax)
			continue
		}
		merged = append(merged, b)
	}
	l.Buckets = merged
}

// ParseHistory reads a server's history in JSON or CBOR: a list whose first element has the server's start, and one element for each
// request, the newest first. In CBOR an address is a byte string, and Californium's ports are signed numbers of 16 bits.
func ParseHistory(m *message.Message) (*History, error) {
	var entries []struct {
		Start *int64 `json:"systemstart"`
		ID    string `json:"rid"`
		Time  int64  `json:"time"`
		EP    any    `json:"ep"`
		Port  int32  `json:"port"`
	}
	var err error
	switch format, _ := m.Format(message.ContentFormat); format {
	case message.JSON:
		err = json.Unmarshal(m.Payload, &entries)
	case message.CBOR:
		err = cbor.Unmarshal(m.Payload, &entries) // it takes the names of JSON
	default:
		return nil, errors.New("the server does not give its history in JSON or CBOR")
	}
	if err != nil {
		return nil, fmt.Errorf("the history of the server: %w", err)
	}
	if len(entries) == 0 || entries[0].Start == nil || len(entries) > maxHistory {
		return nil, errors.New("the history of the server makes no sense: its first element must have systemstart")
	}
	h := &History{Start: *entries[0].Start, Whole: len(entries) <= fullHistory && len(m.Payload)+entryRoom < historyLength}
	for _, e := range entries[1:] {
		if e.ID == "" || len(e.ID) > 128 {
			return nil, errors.New("the history of the server makes no sense: a request without rid")
		}
		h.Requests = append(h.Requests, HistoryEntry{ID: e.ID, Time: e.Time, Address: sourceOf(e.EP, uint16(e.Port))})
	}
	return h, nil
}

// sourceOf renders the address of a request; "" if the server does not report it.
func sourceOf(address any, port uint16) string {
	switch a := address.(type) {
	case string:
		if a != "" {
			return fmt.Sprintf("%.64s:%d", a, port)
		}
	case []byte:
		if ip, ok := netip.AddrFromSlice(a); ok {
			return fmt.Sprintf("%s:%d", ip.Unmap(), port)
		}
	}
	return ""
}
