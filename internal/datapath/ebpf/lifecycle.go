package ebpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// find looks for tables of an earlier run in the pins; nil: make new ones.
func (d *Datapath) find(limits lb.Limits) (*kept, error) {
	if d.pins == nil {
		return nil, nil
	}
	spec, err := bpf.LoadXDP() // both hooks' objects have the same maps
	if err != nil {
		return nil, fmt.Errorf("read the object: %w", err)
	}
	old, err := d.pins.find(spec, tableNames(spec))
	var unlike errUnlike
	switch {
	case errors.As(err, &unlike):
		d.log.Warn("tables in the pins cannot be taken over: flows start anew; packets go on by the old ones until the new ones are complete",
			"pins", d.pins.path, "why", unlike.why)
		return nil, nil
	case err != nil:
		return nil, err
	case old == nil:
		return nil, nil
	case old.fixture.Netns != attach.NamespaceID():
		defer old.close()
		return nil, fmt.Errorf("pin path %s belongs to a data path in another network namespace; choose another --pin-path, or end that one with weir lb stop", d.pins.path)
	}
	d.warnLimits(old.fixture.Limits, limits)
	return old, nil
}

// keep makes or takes over what outlives the process, once the tables are open.
func (d *Datapath) keep(old *kept, limits lb.Limits, hash [20]uint64) error {
	if old != nil {
		d.keeper, old.keeper = old.keeper, nil
		var text generationText
		if err := d.keeper.read(d.tables.Control.Active&1, &text); err != nil {
			return d.unreadable(err)
		}
		if err := d.restore(&text); err != nil {
			return d.unreadable(err)
		}
		d.restored = true
		d.log.Info("took over the tables of an earlier run", "pins", d.pins.path, "services", len(text.Services), "flows", d.tables.Fill(d.now()).Flows)
		return nil
	}
	var err error
	if d.keeper, err = newKeeper(); err != nil || d.pins == nil {
		return err
	}
	if before, err := loadKeeper(d.pins, nil); err == nil { // unlike tables, but what they changed is still ours to take back
		before.hand(d.keeper)
		before.close()
	}
	spec, err := bpf.LoadXDP()
	if err != nil {
		return err
	}
	d.tables.Sizes.Adapt(spec)
	layout, err := abi(spec)
	if err != nil {
		return err
	}
	all := map[string]*ebpf.Map{}
	for _, name := range tableNames(spec) {
		all[name] = d.tables.Maps[name]
	}
	return d.pins.pinAll(all, d.keeper, fixture{ABI: layout, Hash: hash, Limits: limits, Netns: attach.NamespaceID()})
}

func (d *Datapath) unreadable(err error) error {
	return fmt.Errorf("what is pinned at %s cannot be read back: %w; packets go on as before; weir lb stop --pin-path %[1]s ends that, then start anew", d.pins.path, err)
}

// tableNames are the maps that outlive the process.
func tableNames(spec *ebpf.CollectionSpec) []string {
	var list []string
	for name := range spec.Maps {
		if name[0] != '.' {
			list = append(list, name)
		}
	}
	return list
}

// openPins locks the pin path of the configuration.
func (d *Datapath) openPins() error {
	if d.config.PinPath == "" {
		return nil
	}
	p, warning, err := openPins(d.config.PinPath)
	if err != nil {
		return err
	}
	if warning != "" {
		d.log.Warn(warning)
	}
	d.pins, d.inherited = p, len(names(p.links())) > 0
	return nil
}

// closePins leaves what works and removes what never came to work.
func (d *Datapath) closePins() error {
	if d.pins == nil {
		return nil
	}
	defer d.pins.release()
	if d.inPlace || len(names(d.pins.links())) > 0 {
		return nil
	}
	return d.pins.remove()
}
