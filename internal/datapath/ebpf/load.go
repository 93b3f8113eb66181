package ebpf

import (
	"fmt"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/rlimit"

	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/datapath/ebpf/maps"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// load makes the tables for a first snapshot, or takes over those in the pins, and loads the programs that the attachments
// need.
func (d *Datapath) load(limits lb.Limits) error {
	if err := rlimit.RemoveMemlock(); err != nil {
		return fmt.Errorf("lift the limit on locked memory: %w", err)
	}
	old, err := d.find(limits)
	if err != nil {
		return err
	}
	hash := maps.RandomWords()
	var shared map[string]*ebpf.Map
	if old != nil {
		defer old.Close() // the collections have their own handles
		limits, hash, shared = old.Fixture.Limits, old.Fixture.Hash, old.Maps
	}
	sizes := maps.SizesFor(limits)
	if d.config.manual {
		sizes.MaglevRanges, sizes.OwnerRanges = 1<<18, 1<<18
	}
	if err := d.loadPrograms(sizes, d.parameters(limits, sizes, hash), shared); err != nil {
		return err
	}
	t, err := maps.Open(d.objects[d.hooks()[0]].Maps, sizes)
	if err != nil {
		return err
	}
	t.Hash = hash
	d.tables, d.state = t, newState(t)
	return d.keep(old, limits, hash)
}

// parameters are the constants of the programs.
func (d *Datapath) parameters(limits lb.Limits, sizes maps.Sizes, hash [20]uint64) bpf.Parameters {
	p := bpf.Parameters{
		Hash:     hash,
		FlowMask: uint32(sizes.Buckets - 1), BucketSlots: uint32(sizes.BucketSlots),
		FragmentMask: uint32(sizes.FragmentBuckets - 1), FragmentSlots: uint32(sizes.FragmentSlots),
		VipMask: uint32(sizes.VIPs - 1), HopShift: d.clock.HopShift(),
		Ticks: d.clock.Ticks(time.Second), TickNs: uint32(d.clock.Tick),
		FragmentTtl: d.clock.Ticks(limits.FragmentTTL),
		Hold:        holdRoom(limits), HoldEach: uint32(limits.HeldPerDatagram),
	}
	if d.config.Front {
		p.Front, p.Hold = 1, 0
	}
	if d.clock.Manual {
		p.Clock = bpf.ClockManual
	}
	if d.config.manual {
		p.Record = 1
	}
	for _, a := range d.attached {
		if a.Hook == attach.HookXDP && a.Local {
			p.Partial = 1
		}
		if a.Hook == attach.HookXDP && a.Jumbo {
			p.Jumbo = 1
		}
	}
	return p
}

// loadPrograms loads each hook's programs, all on the same maps: those given, if any. What is not used is not loaded, for the
// verifier takes most of the time of a start.
func (d *Datapath) loadPrograms(sizes maps.Sizes, p bpf.Parameters, shared map[string]*ebpf.Map) error {
	hold := p.Hold > 0 && !d.config.manual
	without := ""
	if !hold {
		without = progInject
	}
	for _, hook := range d.hooks() {
		d.log.Info("loading the programs", "hook", hook.String(), "flows", sizes.Flows())
		c, err := loadObject(hook, sizes, p, shared, without)
		if err != nil {
			return err
		}
		d.objects[hook] = c
		if shared == nil {
			shared = c.Maps
		}
	}
	if !hold {
		return nil
	}
	injector := d.objects[attach.HookTCX]
	if injector == nil {
		var err error
		if injector, err = loadObject(attach.HookTCX, sizes, p, shared, progTCX); err != nil {
			return err
		}
		d.closing = append(d.closing, func() error { injector.Close(); return nil })
	}
	d.injector = injector.Programs[progInject]
	return nil
}

// hooks are those in use, each once.
func (d *Datapath) hooks() []attach.Hook {
	if d.config.detached {
		return []attach.Hook{d.config.Hook}
	}
	var hooks []attach.Hook
	for _, h := range []attach.Hook{attach.HookXDP, attach.HookTCX} {
		for _, a := range d.attached {
			if a.Hook == h {
				hooks = append(hooks, h)
				break
			}
		}
	}
	return hooks
}

// objectOf is one hook's object, sized and with its parameters.
func objectOf(hook attach.Hook, s maps.Sizes, p bpf.Parameters) (*ebpf.CollectionSpec, error) {
	read := bpf.LoadXDP
	if hook == attach.HookTCX {
		read = bpf.LoadTCX
	}
	spec, err := read()
	if err != nil {
		return nil, fmt.Errorf("read the %s object: %w", hook, err)
	}
	if err := checkReasons(spec); err != nil {
		return nil, err
	}
	if hook == attach.HookXDP { // one of the two, by whether frames come in parts
		if p.Jumbo != 0 {
			delete(spec.Programs, "weir_xdp")
		} else {
			delete(spec.Programs, "weir_xdp_jumbo")
		}
	}
	s.Adapt(spec)
	if err := spec.Variables["params"].Set(p); err != nil {
		return nil, fmt.Errorf("set the parameters of the %s program: %w", hook, err)
	}
	return spec, nil
}

// The programs of the TCX object.
const (
	progTCX    = "weir_tcx"
	progInject = "weir_inject"
)

// loadObject loads one hook's programs but one, on the maps given, if any.
func loadObject(hook attach.Hook, s maps.Sizes, p bpf.Parameters, shared map[string]*ebpf.Map, without string) (*ebpf.Collection, error) {
	spec, err := objectOf(hook, s, p)
	if err != nil {
		return nil, err
	}
	delete(spec.Programs, without)
	return maps.Load(shared, spec, fmt.Sprintf("%s program", hook))
}

// checkReasons holds enum reason to lb.Reason: same names, same numbers.
func checkReasons(spec *ebpf.CollectionSpec) error {
	var enum *btf.Enum
	if err := spec.Types.TypeByName("reason", &enum); err != nil {
		return fmt.Errorf("enum reason in the object: %w", err)
	}
	for _, v := range enum.Values {
		name := strings.ToLower(strings.TrimPrefix(v.Name, "REASON_"))
		if name == "end" {
			continue
		}
		reason, ok := lb.ParseReason(name)
		if !ok || uint64(reason) != v.Value {
			return fmt.Errorf("enum reason has %s = %d, which is not lb's: regenerate", v.Name, v.Value)
		}
	}
	return nil
}
