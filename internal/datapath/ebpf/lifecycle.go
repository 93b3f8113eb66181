package ebpf

import (
	"errors"
	"fmt"

	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/datapath/ebpf/pins"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// find looks for tables of an earlier run in the pins; nil: make new ones.
func (d *Datapath) find(limits lb.Limits) (*pins.Kept, error) {
	if d.pins == nil {
		return nil, nil
	}
	old, err := d.pins.Find()
	var unlike pins.UnlikeError
	switch {
	case errors.As(err, &unlike):
		d.log.Warn("tables in the pins cannot be taken over: flows start again; packets go on by the old ones until the new ones are complete",
			"pins", d.pins.Path, "why", unlike.Why)
		return nil, nil
	case err != nil:
		return nil, err
	case old == nil:
		return nil, nil
	case old.Fixture.Netns != attach.NamespaceID():
		defer old.Close()
		return nil, fmt.Errorf("pin path %s belongs to a data path in another network namespace; choose another --pin-path, or end that one with weir lb stop", d.pins.Path)
	}
	d.warnLimits(old.Fixture.Limits, limits)
	return old, nil
}

// keep makes or takes over what outlives the process, once the tables are open.
func (d *Datapath) keep(old *pins.Kept, limits lb.Limits, hash [20]uint64) error {
	if old != nil {
		d.store, old.Store = old.Store, nil
		var text pins.Generation
		if err := d.store.Read(d.tables.Control.Active&1, &text); err != nil {
			return d.unreadable(err)
		}
		if err := d.state.restore(d.tables, &text); err != nil {
			return d.unreadable(err)
		}
		d.restored = true
		d.log.Info("took over the tables of an earlier run", "pins", d.pins.Path, "services", len(text.Services), "flows", d.tables.Fill(d.now()).Flows)
		return nil
	}
	var err error
	if d.store, err = pins.NewStore(); err != nil || d.pins == nil {
		return err
	}
	if before, err := pins.LoadStore(d.pins, nil); err == nil { // unlike tables, but what they changed is still ours to take back
		before.HandTo(d.store)
		before.Close()
	}
	return d.pins.PinAll(d.tables.Maps, d.store, limits, hash)
}

func (d *Datapath) unreadable(err error) error {
	return fmt.Errorf("what is pinned at %s cannot be read back: %w; packets go on as before; weir lb stop --pin-path %[1]s ends that, then start again", d.pins.Path, err)
}

// openPins locks the pin path of the configuration.
func (d *Datapath) openPins() error {
	if d.config.PinPath == "" {
		return nil
	}
	p, warning, err := pins.Open(d.config.PinPath)
	if err != nil {
		return err
	}
	if warning != "" {
		d.log.Warn(warning, "event", "attach_warning")
	}
	d.pins, d.inherited = p, len(p.Links()) > 0
	return nil
}

// closePins leaves what works and removes what never came to work.
func (d *Datapath) closePins() error {
	if d.pins == nil {
		return nil
	}
	defer d.pins.Release()
	if d.inPlace || len(d.pins.Links()) > 0 {
		return nil
	}
	return d.pins.Remove()
}
