package ebpf

import (
	stdmaps "maps"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/datapath/ebpf/maps"
	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// given is a flow that another balancer has given this one. While its slot has these words, no packet has used it here.
type given struct {
	fingerprint, meta uint64
	origin            uint64
}

// shared is what of a flow was last yielded by a follower.
type shared struct{ fingerprint, meta uint64 }

// shareStep is how many buckets a follower reads while it holds Datapath.mu.
const shareStep = 1024

// follower is one reader of changes.
type follower struct {
	d      *Datapath
	tables *maps.Tables
	sent   []shared // by number
	batch  []flow.Change
	labels map[uint16]maps.Identity
	snat   []netip.Addr
}

// FollowFlows returns a function that yields what has changed in the flow table since its last call: flows that are translated and proven,
// and the ends of those that it yielded before. A flow that another balancer gave and that no packet has used here is left out if skip
// says so of its origin. A flow in use is yielded again once its expiry has moved by a quarter of the time it has left.
// It reads 16 bytes of memory for each entry that fits into the table, and needs as much again.
func (d *Datapath) FollowFlows() func(skip func(origin uint64) bool, yield func([]flow.Change) bool) {
	f := &follower{d: d}
	return f.pass
}

func (f *follower) pass(skip func(origin uint64) bool, yield func([]flow.Change) bool) {
	d := f.d
	d.mu.Lock()
	if d.tables == nil || d.objects == nil {
		d.mu.Unlock()
		return
	}
	if f.tables != d.tables {
		f.tables, f.sent = d.tables, make([]shared, len(d.tables.Flows)*bpf.BucketSlots)
	}
	f.labels, f.snat = stdmaps.Clone(d.state.backends), d.state.snat
	d.mu.Unlock()
	for from := 0; from < len(f.tables.Flows); from += shareStep {
		f.batch = f.batch[:0]
		open := false
		d.mu.Lock()
		f.tables.Step(func() {
			open = true
			now := d.now()
			for i := from; i < min(from+shareStep, len(f.tables.Flows)); i++ {
				f.bucket(i, now, skip)
			}
		})
		d.mu.Unlock()
		if !open || len(f.batch) > 0 && !yield(f.batch) {
			return
		}
	}
}

// bucket appends what has changed in one bucket.
func (f *follower) bucket(i int, now uint64, skip func(uint64) bool) {
	for w := range f.tables.Flows[i].Slots {
		slot := &f.tables.Flows[i].Slots[w]
		number := i*bpf.BucketSlots + w
		fingerprint, sent := atomic.LoadUint64(&slot.Fingerprint), &f.sent[number]
		if fingerprint|sent.fingerprint == 0 || fingerprint == bpf.FingerprintBusy {
			continue
		}
		meta := atomic.LoadUint64(&slot.Meta)
		change, ok := flow.Change{Number: uint32(number)}, false
		if fingerprint != 0 && maps.Alive(meta, now) && maps.Proven(meta) {
			if sent.fingerprint == fingerprint && !moved(sent.meta, meta, now) {
				continue
			}
			if len(f.d.given) > 0 {
				if g := &f.d.given[number]; g.fingerprint == fingerprint && g.meta == meta && skip(g.origin) {
					*sent = shared{}
					continue
				}
			}
			change.Flow, ok = f.translated(number, meta, now)
			ok = ok && atomic.LoadUint64(&slot.Fingerprint) == fingerprint // else it is another flow's by now
		}
		switch {
		case ok:
			*sent = shared{fingerprint, meta}
		case sent.fingerprint == 0:
			continue
		default:
			change.Ended = maps.Alive(sent.meta, now) // else the others see that by themselves
			*sent = shared{}
			if !change.Ended {
				continue
			}
		}
		f.batch = append(f.batch, change)
	}
}

// moved reports whether a flow that was told of with a meta is to be told of again.
func moved(sent, meta, now uint64) bool {
	if (sent^meta)&(1<<bpf.ExpiryShift-1) != 0 {
		return true
	}
	before, after := sent>>bpf.ExpiryShift, meta>>bpf.ExpiryShift
	return after > before && (after == bpf.Never || 4*(after-before) >= after-now)
}

// translated describes the flow of an entry. False: its packets are not translated, or its backend is gone.
func (f *follower) translated(number int, meta, now uint64) (t flow.Translated, ok bool) {
	entry, backend := f.tables.Entries[number], uint16(meta)
	id, ok := f.labels[backend]
	key := maps.FlowKey(&entry)
	if !ok || entry.Reply == 0 || key.Proto != lb.TCP && key.Proto != lb.UDP {
		return t, false
	}
	record := &f.tables.Backends[2*int(backend)+boolIndex(key.Source().Addr().Is6())]
	if record.Epoch != uint8(meta>>16) || record.Family == 0 {
		return t, false
	}
	port := maps.Swap16(record.Port)
	if port == 0 {
		port = key.DstPort
	}
	t = flow.Translated{
		Key: key, Service: id.Service, Backend: id.Backend, Server: netip.AddrPortFrom(maps.Address(record.Addr), port), Left: -1,
	}
	switch meta >> bpf.StateShift & 3 {
	case bpf.FlowEstablished:
		t.Progress = flow.Established
	case bpf.FlowClosing:
		t.Progress = flow.Closing
	}
	if expiry := meta >> bpf.ExpiryShift; expiry != bpf.Never {
		t.Left = time.Duration(expiry-now) * f.d.clock.Tick
	}
	if at := int(entry.Nat) - 1; at >= 0 && at < len(f.snat) {
		t.Source = netip.AddrPortFrom(f.snat[at], maps.Swap16(entry.NatPort))
	}
	return t, true
}

func boolIndex(b bool) int {
	if b {
		return 1
	}
	return 0
}

// EnterFlows takes the flows of another balancer, and writes into answers what became of each. origin says which balancer it is.
func (d *Datapath) EnterFlows(origin uint64, flows []flow.Translated, answers []flow.Answer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tables == nil || d.objects == nil || d.snapshot == nil {
		for i := range flows {
			answers[i] = flow.Answer{Refusal: flow.NotReady}
		}
		return
	}
	if d.given == nil {
		d.given = make([]given, len(d.tables.Flows)*bpf.BucketSlots)
	}
	now := d.now()
	for i := range flows {
		answers[i] = d.enter(origin, &flows[i], now)
	}
}

func (d *Datapath) enter(origin uint64, f *flow.Translated, now uint64) (a flow.Answer) {
	e, refusal := d.entering(f, now)
	if refusal != flow.Accepted {
		return flow.Answer{Refusal: refusal}
	}
	var meta uint64
	if a.Entry, meta, a.Refusal = d.tables.Enter(&e, now); a.Refusal == flow.Accepted && meta != 0 {
		d.given[a.Entry.Number] = given{fingerprint: a.Entry.Fingerprint, meta: meta, origin: origin}
	}
	return a
}

// entering makes an entry of this balancer out of a flow of another one: services and backends have other numbers here.
func (d *Datapath) entering(f *flow.Translated, now uint64) (e maps.Entering, refusal flow.Refusal) {
	s := d.state.inForce[f.Service]
	if to, serves := d.snapshot.Lookup(f.Key.Proto, f.Key.Src, f.Key.Dst, f.Key.DstPort); s == nil || s.Spec.Mode != lb.NAT || !serves || to != d.snapshot.Service(f.Service) {
		return e, flow.UnknownService
	}
	at := slices.IndexFunc(s.Spec.Backends, func(b *lb.Backend) bool { return b.Name == f.Backend })
	if at < 0 {
		return e, flow.UnknownBackend
	}
	is6 := f.Key.Source().Addr().Is6()
	record := &d.tables.Backends[2*int(s.Slots[at])+boolIndex(is6)]
	if record.Family == 0 || maps.Address(record.Addr) != f.Server.Addr() || record.Port != 0 && maps.Swap16(record.Port) != f.Server.Port() || record.Port == 0 && f.Server.Port() != f.Key.DstPort {
		return e, flow.UnknownBackend
	}
	source := f.Source
	if source.IsValid() {
		snat := s.Spec.SNAT
		if snat == nil || source.Port() < snat.First || source.Port() > snat.Last || source.Addr().Is6() != is6 {
			return e, flow.UnknownSource
		}
		i := slices.Index(snat.Addresses, source.Addr())
		if i < 0 {
			return e, flow.UnknownSource
		}
		e.Entry.Nat = uint32(indexOfRun(d.state.snat, snat.Addresses)+i) + 1
		e.Entry.NatPort = maps.Swap16(source.Port())
	} else {
		source = f.Key.Source()
	}
	e.Entry.Target = uint32(s.Slots[at]) | uint32(record.Epoch)<<16
	e.Entry.Service = s.Number
	maps.SetKey(&e.Entry, f.Key)
	maps.SetKey(&e.Reply, flow.NewKey(f.Server, source, f.Key.Proto))
	e.Progress = bpf.FlowProven | uint64([...]uint8{bpf.FlowPlain, bpf.FlowEstablished, bpf.FlowClosing}[f.Progress])
	e.Expiry = bpf.Never
	if f.Left >= 0 {
		e.Expiry = now + uint64(d.clock.Ticks(f.Left))
	}
	e.Replaces = d.unused
	return e, flow.Accepted
}

// unused reports whether a live flow came from another balancer and no packet has used it here.
func (d *Datapath) unused(number uint32, meta uint64) bool {
	g := &d.given[number]
	return g.fingerprint != 0 && g.meta == meta && atomic.LoadUint64(&d.tables.Flows[number/bpf.BucketSlots].Slots[number%bpf.BucketSlots].Fingerprint) == g.fingerprint
}

// EndFlow ends a flow that came from another balancer, unless packets have used it here.
func (d *Datapath) EndFlow(e flow.Entry) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if int(e.Number) >= len(d.given) || d.objects == nil {
		return
	}
	if g := d.given[e.Number]; g.fingerprint == e.Fingerprint && d.unused(e.Number, g.meta) {
		d.tables.ForgetFlow(int(e.Number), g.meta)
		d.given[e.Number] = given{}
	}
}

// GivenFlows counts the live flows that came from other balancers and that no packet has used here.
func (d *Datapath) GivenFlows() (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.objects == nil {
		return 0
	}
	for i := range d.given {
		if g := &d.given[i]; g.fingerprint != 0 && maps.Alive(g.meta, d.now()) && atomic.LoadUint64(&d.tables.Flows[i/bpf.BucketSlots].Slots[i%bpf.BucketSlots].Meta) == g.meta && d.unused(uint32(i), g.meta) {
			n++
		}
	}
	return n
}
