package allocation

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Errors of Restore and Import.
var (
	ErrExists   = errors.New("its client has an allocation already")
	ErrOver     = errors.New("its lifetime is over")
	ErrUser     = errors.New("its user does not exist here")
	ErrQuota    = errors.New("a quota of allocations is reached")
	ErrDraining = errors.New("no new allocations while this server drains")
)

// Record returns the record of an allocation.
func (t *Table) Record(a *Allocation) Record {
	r := Record{
		Version: RecordVersion, ID: a.ID, Path: a.Path, User: a.User, Realm: a.realm, TCP: a.TCP, DontFragment: a.DontFragment,
		Transaction: hex.EncodeToString(a.request[:]), Granted: a.granted, Created: a.Created, Expires: a.Expires,
		Up: a.Up.record(), Down: a.Down.record(),
	}
	for family, relay := range a.Relay {
		if relay.IsValid() {
			r.Relay = append(r.Relay, relay)
			if public := a.Public[family]; public.IsValid() {
				r.RelayPublic = append(r.RelayPublic, public)
			}
		}
	}
	for _, p := range a.permissions.values {
		r.Permissions = append(r.Permissions, PermissionRecord{p.Peer, p.Expires})
	}
	for _, c := range a.channels.values {
		r.Channels = append(r.Channels, ChannelRecord{c.Number, c.Peer, c.Expires})
	}
	if a.token != 0 && t.shared.waits(a.token) {
		token := binary.BigEndian.AppendUint64(nil, a.token)
		r.Reservation = &ReservationRecord{hex.EncodeToString(token), a.reserved, a.reservedAt}
	}
	return r
}

func (t *Traffic) record() TrafficRecord {
	return TrafficRecord{t.Packets.Load(), t.Bytes.Load(), t.Last.Load()}
}

func (t *Traffic) restore(r TrafficRecord) {
	t.Packets.Store(r.Packets)
	t.Bytes.Store(r.Bytes)
	t.Last.Store(r.Last)
}

// Restore creates the allocation of a record with the same relay addresses. Permissions and channels that are expired or exceed
// the quota are omitted; those whose peers are not admitted are suspended. Quotas count the allocation but do not refuse it. No lifetime is longer than the
// policy would grant now. Errors: an invalid record, ErrExists, ErrOver, or that of Relays.Open.
func (t *Table) Restore(r Record, now int64) (*Allocation, error) { return t.restore(r, now, true) }

// Import is Restore for a record from another server: it grants nothing that an Allocate would not grant. The user
// must exist (with ephemeral credentials, every user does), and the quotas must not be reached. Errors: also ErrUser,
// ErrQuota and ErrDraining.
func (t *Table) Import(r Record, now int64) (*Allocation, error) {
	p := t.shared.Policy()
	err := error(nil)
	switch {
	case p.Draining:
		err = ErrDraining
	case !p.Auth.knows(r.User):
		err = ErrUser
	}
	if err != nil {
		return nil, fmt.Errorf("import allocation %d of %v: %w", r.ID, r.Path.Client, err)
	}
	return t.restore(r, now, false)
}

// restore restores a record. With own, quotas do not refuse it.
func (t *Table) restore(r Record, now int64, own bool) (*Allocation, error) {
	if err := r.check(); err != nil {
		return nil, fmt.Errorf("restore allocation %d: %w", r.ID, err)
	}
	if t.paths[r.Path] != nil {
		return nil, fmt.Errorf("restore allocation %d of %v: %w", r.ID, r.Path.Client, ErrExists)
	}
	if r.Expires <= now {
		return nil, fmt.Errorf("restore allocation %d of %v: %w", r.ID, r.Path.Client, ErrOver)
	}
	l := &t.shared.Policy().Lifetimes
	a := &Allocation{
		ID: r.ID, Path: r.Path, User: r.User, TCP: r.TCP, DontFragment: r.DontFragment, Created: r.Created,
		Expires: clamp(r.Expires, now, l.Max), table: t, granted: r.Granted, realm: r.Realm,
	}
	if a.realm == "" {
		a.realm = t.shared.Policy().Realm
	}
	if _, err := hex.Decode(a.request[:], []byte(r.Transaction)); err != nil {
		return nil, fmt.Errorf("restore allocation %d: %w", r.ID, err)
	}
	a.Up.restore(r.Up)
	a.Down.restore(r.Down)
	a.ID = t.shared.takeID(r.ID)
	if err := t.reopen(a, &r, now, own); err != nil {
		t.shared.giveID(a.ID)
		return nil, fmt.Errorf("restore allocation %d of %v: %w", r.ID, r.Path.Client, err)
	}
	t.insert(a)
	t.restoreParts(a, &r, now)
	t.changed(a)
	return a, nil
}

// reopen opens the relays of a record again, and reserves its reserved port.
func (t *Table) reopen(a *Allocation, r *Record, now int64, own bool) error {
	var want RelayRequest
	for _, relay := range r.Relay {
		want.Exact[family(relay.Addr())] = relay
	}
	want.V4, want.V6 = want.Exact[V4].IsValid(), want.Exact[V6].IsValid()
	reserved := r.Reservation != nil && r.Reservation.Expires > now && !t.shared.waits(token(r.Reservation))
	if reserved {
		want.Reserve, want.Reserved = true, r.Reservation.Relay
	}
	count := 1
	if reserved {
		count++
	}
	if !t.shared.acquire(a.User, count, own) {
		return ErrQuota
	}
	if _, err := t.relays.Open(a, want); err != nil {
		for range count {
			t.shared.release(a.User)
		}
		return fmt.Errorf("open relay %v: %w", r.Relay, err)
	}
	a.Relay, a.Public = want.Exact, [2]netip.Addr{} // what the client received before, even if the configuration has changed
	for _, public := range r.RelayPublic {
		a.Public[family(public)] = public
	}
	if reserved {
		a.token = token(r.Reservation)
		t.reserve(a, r.Reservation.Relay, clamp(r.Reservation.Expires, now, reservationTime))
	}
	return nil
}

func token(r *ReservationRecord) uint64 {
	var b [8]byte
	if _, err := hex.Decode(b[:], []byte(r.Token)); err != nil {
		return 0 // check has validated it
	}
	return binary.BigEndian.Uint64(b[:])
}

// restoreParts restores channels before permissions, because permissions call Events for the channels.
func (t *Table) restoreParts(a *Allocation, r *Record, now int64) {
	p := t.shared.Policy()
	for _, v := range r.Channels {
		cluster, reason := a.check(v.Peer)
		if reason != OK && reason != Forbidden || v.Expires <= now || len(a.channels.keys) >= p.Quotas.Channels {
			continue
		}
		c := &Channel{
			Number: v.Number, Peer: v.Peer, Cluster: cluster, Suspended: reason != OK,
			Expires: clamp(v.Expires, now, p.Lifetimes.Channel),
		}
		a.channels.put(c.Number, c)
		a.peers.put(c.Peer, c)
	}
	for _, v := range r.Permissions {
		cluster, reason := a.check(netip.AddrPortFrom(v.Peer, 0))
		if reason != OK && reason != Forbidden || v.Expires <= now || len(a.permissions.keys) >= p.Quotas.Permissions {
			continue
		}
		expires := clamp(v.Expires, now, p.Lifetimes.Permission)
		if reason == Forbidden {
			a.permissions.put(v.Peer, &permission{Permission: Permission{Peer: v.Peer, Expires: expires, Suspended: true}})
			continue
		}
		t.permit(a, v.Peer, cluster, expires)
	}
}

func clamp(expires, now int64, longest time.Duration) int64 { return min(expires, now+int64(longest)) }

// queue inserts a reservation in the order of expiry.
func (t *Table) queue(r reservation) {
	at, _ := slices.BinarySearchFunc(t.reservations, r.expires+1, func(r reservation, end int64) int {
		if r.expires < end {
			return -1
		}
		return 1
	})
	t.reservations = slices.Insert(t.reservations, at, r)
}
