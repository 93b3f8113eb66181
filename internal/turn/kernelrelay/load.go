package kernelrelay

import (
	"fmt"
	"strings"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/rlimit"

	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/datapath/ebpf/maps"
)

// relayTables are the mapped tables of the relay.
type relayTables struct {
	maps.Tables
	control *bpf.Control
	entries []bpf.TurnRelayEntry
	full    []uint64 // by bucket
	hops    []bpf.ClientHop
	relayed []bpf.TurnRelayed // of each CPU, by entry
	ends    []string          // names of enum turn_end
}

// The programs of the XDP object: for frames in one part, and in several.
const (
	progTurn      = "weir_turn_xdp"
	progTurnJumbo = "weir_turn_jumbo"
	progTurnTCX   = "weir_turn_tcx"
)

// object returns a hook's programs, loaded on the tables of the other one's, if those are there. The caller holds mu.
func (o *Relay) object(hook attach.Hook) (*ebpf.Collection, error) {
	if c := o.objects[hook]; c != nil {
		return c, nil
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("lift the limit on locked memory: %w", err)
	}
	spec, err := o.spec(hook)
	if err != nil {
		return nil, err
	}
	var shared map[string]*ebpf.Map
	if o.tables != nil {
		shared = o.tables.Maps
	}
	c, err := maps.Load(shared, spec, fmt.Sprintf("%s relay", hook))
	if err != nil {
		return nil, err
	}
	if o.tables == nil {
		if err := o.openTables(spec, c); err != nil {
			c.Close()
			return nil, err
		}
	}
	o.objects[hook] = c
	return c, nil
}

// spec is one hook's object, sized and with its parameters.
func (o *Relay) spec(hook attach.Hook) (*ebpf.CollectionSpec, error) {
	read := bpf.LoadTurn
	if hook == attach.HookTCX {
		read = bpf.LoadTurnTCX
	}
	spec, err := read()
	if err != nil {
		return nil, fmt.Errorf("read the %s relay: %w", hook, err)
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, fmt.Errorf("count processors: %w", err)
	}
	entries := uint32(2 * (o.config.MaxChannels + 1)) // ids begin at 1
	for name, entries := range map[string]uint32{
		bpf.TurnMapTurnKeys: entries, bpf.TurnMapRelayEntries: entries, bpf.TurnMapTurnBuckets: entries / 2, bpf.TurnMapTurnTraffic: entries * uint32(cpus),
	} {
		spec.Maps[name].MaxEntries = entries
	}
	p := bpf.Parameters{
		Hash: maps.RandomWords(), HopShift: o.clock.HopShift(), Ticks: o.clock.Ticks(time.Second), TickNs: uint32(o.clock.Tick), Home: bpf.Loopback,
	}
	if o.config.detached {
		p.Clock, p.Home, p.Partial = 1, uint32(o.config.home), 1
	}
	jumbo := false
	for i := range o.attached {
		if a := &o.attached[i]; a.Hook == attach.HookXDP {
			jumbo = jumbo || a.Jumbo
			if a.Local {
				p.Partial = 1
			}
		}
	}
	if hook == attach.HookXDP {
		if jumbo {
			p.Jumbo = 1
			delete(spec.Programs, progTurn)
		} else {
			delete(spec.Programs, progTurnJumbo)
		}
	}
	if err := spec.Variables["params"].Set(p); err != nil {
		return nil, fmt.Errorf("set the parameters of the %s relay: %w", hook, err)
	}
	if err := spec.Variables["relay_entries_max"].Set(entries); err != nil {
		return nil, fmt.Errorf("set the size of the %s relay: %w", hook, err)
	}
	return spec, nil
}

func (o *Relay) openTables(spec *ebpf.CollectionSpec, c *ebpf.Collection) error {
	t := &relayTables{Tables: maps.Tables{Maps: map[string]*ebpf.Map{}}}
	for name, m := range c.Maps {
		t.Maps[name] = m
	}
	for name, to := range map[string]func([]byte){
		bpf.TurnMapControls:     func(b []byte) { t.control = (*bpf.Control)(unsafe.Pointer(&b[0])) },
		bpf.TurnMapRelayEntries: func(b []byte) { t.entries = maps.View[bpf.TurnRelayEntry](b) },
		bpf.TurnMapClientHops:   func(b []byte) { t.hops = maps.View[bpf.ClientHop](b) },
		bpf.TurnMapTurnBuckets:  func(b []byte) { t.full = maps.View[uint64](b) },
		bpf.TurnMapTurnTraffic:  func(b []byte) { t.relayed = maps.View[bpf.TurnRelayed](b) },
	} {
		b, err := t.Mmap(name)
		if err != nil {
			t.Close()
			return err
		}
		to(b)
	}
	var enum *btf.Enum
	if err := spec.Types.TypeByName("turn_end", &enum); err != nil {
		t.Close()
		return fmt.Errorf("enum turn_end in the object: %w", err)
	}
	for _, v := range enum.Values[:len(enum.Values)-1] {
		t.ends = append(t.ends, strings.ToLower(strings.TrimPrefix(v.Name, "TURN_")))
	}
	o.tables = t
	return nil
}

// relayProgram is the one of a hook.
func relayProgram(c *ebpf.Collection) *ebpf.Program {
	for _, name := range []string{progTurn, progTurnJumbo, progTurnTCX} {
		if p := c.Programs[name]; p != nil {
			return p
		}
	}
	return nil
}
