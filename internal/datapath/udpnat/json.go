package udpnat

import (
	"encoding/json"
	"time"
)

// Times in JSON are numbers with their unit in the key, as everywhere in Weir.

// MarshalJSON adds silent_s and, when there was a reply, last_reply_s.
func (b Backend) MarshalJSON() ([]byte, error) {
	type plain Backend
	form := struct {
		plain
		Silent    float64  `json:"silent_s"`               // since the first unanswered datagram
		LastReply *float64 `json:"last_reply_s,omitempty"` // ago
	}{plain: plain(b), Silent: b.Silent.Seconds()}
	if b.LastReply >= 0 {
		ago := b.LastReply.Seconds()
		form.LastReply = &ago
	}
	return json.Marshal(form)
}

// MarshalJSON adds idle_s.
func (e Entry) MarshalJSON() ([]byte, error) {
	type plain Entry
	return json.Marshal(struct {
		plain
		Idle float64 `json:"idle_s"`
	}{plain(e), e.Idle.Seconds()})
}

// MarshalJSON adds reorder_delay_ms and reorder_jitter_ms.
func (f Faults) MarshalJSON() ([]byte, error) {
	type plain Faults
	return json.Marshal(struct {
		plain
		ReorderDelay  float64 `json:"reorder_delay_ms"`
		ReorderJitter float64 `json:"reorder_jitter_ms"`
	}{plain(f), millis(f.ReorderDelay), millis(f.ReorderJitter)})
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
