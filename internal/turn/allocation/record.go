package allocation

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"slices"
	"unicode/utf8"
)

// RecordVersion is the version of Record that this package writes.
const RecordVersion = 1

// Limits of a record.
const (
	maxRecord  = 1 << 20 // bytes of JSON
	maxEntries = 4096    // permissions, and channels
	maxID      = 1<<53 - 1
)

// Record is everything that is needed to restore an allocation in another process, without secrets. Table.Record and Table.Restore use
// times of the table's clock; elsewhere they are Unix nanoseconds, see Shift. The gateway sets Listener after
// Table.Record and Path.Listener before Table.Restore. RFC 6062 connections are not part of it: their clients connect again.
type Record struct {
	Version      int                `json:"version"`
	ID           uint64             `json:"id"`
	Listener     string             `json:"listener"`
	Path         Path               `json:"path"`
	User         string             `json:"user"`
	Realm        string             `json:"realm,omitempty"`        // the realm that its client knows; "" means the policy's
	Relay        []netip.AddrPort   `json:"relay"`                  // at most one of each family
	RelayPublic  []netip.Addr       `json:"relay_public,omitempty"` // Allocation.Public, at most one of each family of Relay
	TCP          bool               `json:"tcp,omitempty"`
	DontFragment bool               `json:"dont_fragment,omitempty"`
	Transaction  string             `json:"transaction"` // of its Allocate, 24 hexadecimal digits
	Granted      uint32             `json:"granted"`     // seconds that the answer to it gave
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
func DecodeRecord(b []byte) (Record, error) {
	if len(b) > maxRecord {
		return Record{}, fmt.Errorf("allocation record of %d bytes is longer than %d", len(b), maxRecord)
	}
	var r Record
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return Record{}, fmt.Errorf("allocation record: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Record{}, errors.New("allocation record: something follows the record")
	}
	err := r.check()
	if err == nil && r.Created < 0 {
		err = errors.New("it was created before 1970")
	}
	if err != nil {
		return Record{}, fmt.Errorf("allocation record %d: %w", r.ID, err)
	}
	return r, nil
}

// Shift moves all times by so many nanoseconds: from one clock to another.
func (r *Record) Shift(by int64) {
	move := func(at *int64) {
		if by > 0 && *at > math.MaxInt64-by || by < 0 && *at < math.MinInt64-by {
			return // 0 is not a time of any clock and stays 0
		}
		*at += by
	}
	move(&r.Created)
	move(&r.Expires)
	r.Permissions, r.Channels = slices.Clone(r.Permissions), slices.Clone(r.Channels) // do not change the caller's slices
	for i := range r.Permissions {
		move(&r.Permissions[i].Expires)
	}
	for i := range r.Channels {
		move(&r.Channels[i].Expires)
	}
	if r.Reservation != nil {
		reservation := *r.Reservation
		move(&reservation.Expires)
		r.Reservation = &reservation
	}
	for _, last := range []*int64{&r.Up.Last, &r.Down.Last} {
		if *last != 0 {
			move(last)
		}
	}
}

func (r *Record) check() error {
	switch {
	case r.Version != RecordVersion:
		return fmt.Errorf("version %d, this weir reads %d", r.Version, RecordVersion)
	case r.ID == 0 || r.ID > maxID:
		return errors.New("id is not between 1 and 2^53")
	case r.User == "" || len(r.User) > maxUser || !utf8.ValidString(r.User):
		return fmt.Errorf("user is empty or not UTF-8 of at most %d bytes", maxUser)
	case len(r.Realm) > maxText || !utf8.ValidString(r.Realm):
		return fmt.Errorf("realm is not UTF-8 of at most %d bytes", maxText)
	case !plain(r.Path.Client, true) || !plain(r.Path.Server, true) || r.Path.Transport > DTLS:
		return errors.New("path is not two addresses with ports and a transport")
	case len(r.Relay) == 0 || len(r.Relay) > 2 || len(r.Relay) == 2 && r.Relay[0].Addr().Is4() == r.Relay[1].Addr().Is4():
		return errors.New("relay is not one address of one or each family")
	case len(r.Permissions) > maxEntries || len(r.Channels) > maxEntries:
		return fmt.Errorf("more than %d permissions or channels", maxEntries)
	case r.Expires < r.Created:
		return errors.New("expires before it was created")
	}
	for _, relay := range r.Relay {
		if !plain(relay, false) {
			return fmt.Errorf("relay %v is not an address with a port", relay)
		}
	}
	if err := r.checkPublic(); err != nil {
		return err
	}
	if id, err := hex.DecodeString(r.Transaction); err != nil || len(id) != 12 {
		return errors.New("transaction is not 24 hexadecimal digits")
	}
	return r.checkParts()
}

// checkPublic checks that each public address belongs to a relay address of the record, at most one for each.
func (r *Record) checkPublic() error {
	var left [2]bool
	for _, relay := range r.Relay {
		left[family(relay.Addr())] = true
	}
	for _, public := range r.RelayPublic {
		if !plain(netip.AddrPortFrom(public, 1), false) || !left[family(public)] {
			return fmt.Errorf("relay_public %v is not the one of a relay address", public)
		}
		left[family(public)] = false
	}
	return nil
}

func (r *Record) checkParts() error {
	seen := map[any]bool{}
	for _, p := range r.Permissions {
		if !plain(netip.AddrPortFrom(p.Peer, 1), false) || seen[p.Peer] {
			return fmt.Errorf("permission for %v is not for an address, or there twice", p.Peer)
		}
		seen[p.Peer] = true
	}
	for _, c := range r.Channels {
		if c.Number < MinChannel || c.Number > MaxChannel || !plain(c.Peer, false) || seen[c.Number] || seen[c.Peer] || r.TCP {
			return fmt.Errorf("channel %#x to %v is out of range or there twice", c.Number, c.Peer)
		}
		seen[c.Number], seen[c.Peer] = true, true
	}
	if v := r.Reservation; v != nil {
		if token, err := hex.DecodeString(v.Token); err != nil || len(token) != 8 || !plain(v.Relay, false) {
			return errors.New("reservation is not 16 hexadecimal digits with an address")
		}
	}
	return nil
}

// plain reports whether an address is complete, not IPv4-mapped, and has a zone only if zone allows one.
func plain(a netip.AddrPort, zone bool) bool {
	return a.IsValid() && a.Port() != 0 && !a.Addr().Is4In6() && (a.Addr().Zone() == "" || zone && len(a.Addr().Zone()) <= 32)
}
