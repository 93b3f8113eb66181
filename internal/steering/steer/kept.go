package steer

import (
	"encoding/binary"
	"time"

	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/siphash"
)

// Journal is told of each change of a conntrack entry that outlives the process, so that the next process can Restore it. Entries have
// numbers from 0 to Options.MaxFlows-1, which are used again. Its methods must not use the Engine.
type Journal interface {
	Keep(number int, f KeptFlow)
	Forget(number int)
}

// KeptFlow is a conntrack entry as it outlives a process. It has nothing of mode NAT's translation.
type KeptFlow struct {
	Key     flow.Key // as seen from the client
	Backend uint64   // fingerprint of service, backend, its mode, mark and addresses
	State   uint8    // of TCP
	Proven  bool
	Until   time.Duration // when it expires, by the Engine's clock; the maximum: never
}

// fingerprint of what makes a backend the same one in two processes.
func (id *identity) fingerprint() uint64 {
	b := make([]byte, 0, 128)
	for _, text := range []string{id.service, id.backend, id.address4.String(), id.address6.String()} {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(text)))
		b = append(b, text...)
	}
	b = append(b, byte(id.mode))
	b = binary.LittleEndian.AppendUint32(b, id.mark)
	b = binary.LittleEndian.AppendUint16(b, id.port)
	return siphash.Sum(new([16]byte), b)
}

// keep tells the journal of an entry.
func (e *Engine) keep(k flow.Key, en *entry, at flow.Ref) {
	if e.options.Journal != nil {
		e.options.Journal.Keep(int(at), KeptFlow{
			Key: k, Backend: en.record.fingerprint, State: uint8(en.state), Proven: e.flows.Proven(at), Until: e.flows.Expiry(at),
		})
	}
}

// Restored says what became of a kept flow.
type Restored uint8

// What becomes of a kept flow.
const (
	RestoredFlow   Restored = iota
	RestoreExpired          // its time is over
	RestoreGone             // its backend or service is not configured any more, or is another one
	RestoreNoRoom           // the table is full, or has a newer entry of the flow
	RestoreBad              // it is no entry
	NumRestored    = int(RestoreBad) + 1
)

// Restore enters a flow that an earlier process has kept, unless the configuration in force does not allow it any more. It evicts nothing.
func (e *Engine) Restore(f *KeptFlow, now time.Duration) Restored {
	if f.State > uint8(closing) || (f.Key.Proto == flow.ProtoTCP) != (tcpState(f.State) != notTCP) {
		return RestoreBad
	}
	left := f.Until - now
	if f.Until != never && left <= 0 {
		return RestoreExpired
	}
	record := e.byFingerprint(f.Backend)
	if record == nil || !e.allows(&f.Key, record.backend.Service) {
		return RestoreGone
	}
	if e.flows.Len() >= e.flows.Max() || e.flows.Get(f.Key, now) != nil {
		return RestoreNoRoom
	}
	en := entry{record: record, state: tcpState(f.State)}
	if !e.flows.Put(f.Key, en, now, min(left, en.state.timeout(record.backend.Service, f.Key.Proto))) {
		return RestoreNoRoom
	}
	made, at := e.flows.Find(f.Key, now)
	if made == nil {
		return RestoreExpired
	}
	if f.Proven {
		e.flows.Prove(at)
	}
	e.keep(f.Key, made, at)
	return RestoredFlow
}

// byFingerprint returns the record of a backend in force.
func (e *Engine) byFingerprint(fingerprint uint64) *backendRecord {
	if e.fingerprints == nil {
		e.fingerprints = make(map[uint64]*backendRecord, len(e.records))
		for id, record := range e.records {
			e.fingerprints[id.fingerprint()] = record
		}
	}
	return e.fingerprints[fingerprint]
}

// allows reports whether packets of a flow may still come to a service. Flow rules may look at bytes that are not kept: with rules the
// look-up of each packet decides.
func (e *Engine) allows(k *flow.Key, service *lb.Service) bool {
	switch {
	case service.Mode == lb.NAT || service.Stateless:
		return false
	case len(e.snapshot.Rules) > 0 || byPorts(service, k):
		return true
	case k.Proto == flow.ProtoICMP || k.Proto == flow.ProtoICMPv6:
		to, serves := e.snapshot.LookupAddress(k.Src, k.Dst)
		return serves && to == service
	}
	to, serves := e.snapshot.Lookup(k.Proto, k.Src, k.Dst, k.DstPort)
	return serves && to == service
}
