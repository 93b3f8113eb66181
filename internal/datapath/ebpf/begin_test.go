package ebpf

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/datapath/ebpf/ebpftest"
	"github.com/weir-lb/weir/internal/datapath/ebpf/maps"
	"github.com/weir-lb/weir/internal/datapath/ebpf/pins"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// openPinned opens a data path with pins of its own.
func openPinned(t *testing.T, host *netlab.Host, path string, interfaces ...string) (d *Datapath) {
	t.Helper()
	ebpftest.Do(t, host, func() (err error) {
		d, err = Open(Config{Interfaces: interfaces, Hook: attach.HookTCX, PinPath: path})
		return err
	})
	return d
}

// dies leaves everything as a kill does: pins stay, handles go.
func (d *Datapath) dies() {
	d.inPlace = true // so that Close leaves the pins
	d.Close()
}

// TestRootKilledInFirstApply kills between the tables and the first generation
// in them: the next start finds nothing to take over and begins again.
func TestRootKilledInFirstApply(t *testing.T) {
	t.Parallel()
	topology := netlab.NAT()
	topology.Name = "ebkill"
	lab := netlabtest.Up(t, topology)
	gateway, path := lab.Namespace("gateway"), filepath.Join(netlabtest.BPFFS(t), "lb")
	d := openPinned(t, gateway, path, "veth0")
	ebpftest.Do(t, gateway, func() error {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.load(lb.Limits{Flows: 64, Fragments: 64})
	})
	d.dies()
	b := &balancer{t: t, host: gateway, d: openPinned(t, gateway, path, "veth0")}
	b.apply("services:\n- name: echo\n  mode: nat\n" + vips[1:] + oneBackend[1:])
	if b.d.restored {
		t.Error("took over tables that were never finished")
	}
	b.d.Close()
	stopped, err := pins.Stop(t.Context(), path, b.d.log)
	if err != nil || stopped == nil || len(stopped.Links) != 1 {
		t.Errorf("stop: %+v, %v", stopped, err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("pins stay: %v", err)
	}
}

// TestRootFirstApplyFails refuses a first snapshot; the next one is judged again.
func TestRootFirstApplyFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ebpftest.Do(t, w.host, func() error {
		d, err := Open(Config{Hook: attach.HookTCX, detached: true, manual: true})
		if err != nil {
			return err
		}
		defer d.Close()
		if err := d.load(lb.Limits{Flows: 64, Fragments: 64}); err != nil {
			return err
		}
		full := maps.NewRanges(nil)
		free := d.state.maglev
		d.state.maglev = full
		snapshot := compile(t, "services:\n- name: echo\n  mode: nat\n"+vips[1:]+oneBackend[1:], d.Caps())
		if err := d.Apply(snapshot); err == nil {
			t.Error("no elements, no error")
		}
		d.state.maglev = free
		// Room in the map of backends' addresses is given back as well.
		natBackends := d.tables.Maps[bpf.MapNatBackends]
		broken := *snapshot
		broken.Generation++
		c := d.newChange(&broken)
		if err := c.prepare(); err != nil {
			return err
		}
		c.undo()
		var a bpf.Addr
		var one uint32
		if natBackends.Iterate().Next(&a, &one) {
			t.Errorf("undone, and %s is still a NAT backend", maps.Address(a.Word))
		}
		return d.Apply(snapshot)
	})
}

// TestRootOwnerIDsBehindTheLast: the range of a table of owner ids may be larger than the table. What an earlier one left
// there is no backend's.
func TestRootOwnerIDsBehindTheLast(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ebpftest.Do(t, w.host, func() error {
		d, err := Open(Config{Hook: attach.HookTCX, detached: true, manual: true})
		if err != nil {
			return err
		}
		defer d.Close()
		if err := d.load(lb.Limits{Flows: 64, Fragments: 64}); err != nil {
			return err
		}
		for i := range d.tables.Owners[:64] {
			d.tables.Owners[i] = 7
		}
		if err := d.Apply(compile(t, `
services:
- name: cid
  mode: l2dsr
  vips: [{address: "192.0.2.1", protocol: udp, port: 5684}]
  cid: {protocols: [dtls12], layouts: [{length: 8, owner: {offset: 0, bits: 8}}]}
  backends: [{name: a, address: "10.1.0.1", nodes: [1]}]
`, d.Caps())); err != nil {
			return err
		}
		owned := d.state.owners.Of(d.state.inForce["cid"].Owners[0])
		slot := d.state.inForce["cid"].Slots[0]
		if want := []uint16{bpf.NoSlot, slot, bpf.NoSlot, bpf.NoSlot}; !slices.Equal(owned, want) {
			t.Errorf("owners of ids from 0: %v, want %v", owned, want)
		}
		return nil
	})
}
