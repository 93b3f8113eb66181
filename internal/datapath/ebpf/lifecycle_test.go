package ebpf

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/datapath/ebpf/ebpftest"
	"github.com/weir-lb/weir/internal/datapath/ebpf/maps"
	"github.com/weir-lb/weir/internal/datapath/ebpf/pins"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

func compile(t *testing.T, spec string, caps lb.Caps) *lb.Snapshot {
	t.Helper()
	decoded, _, err := config.Decode[lb.Spec]("spec.yaml", []byte(spec))
	if err != nil {
		t.Fatal(err)
	}
	snapshot, err := lb.Compile(decoded, nil, caps)
	if err != nil {
		t.Fatal(err)
	}
	return snapshot
}

const specBefore = `
hash_key: 00112233445566778899aabbccddeeff
maglev_size: 251
limits: {flows: 4096}
services:
- name: old
  vips: [{address: 10.0.0.1, protocol: udp, port: 80}]
  backends: [{name: a, address: 10.2.0.2}, {name: b, address: 10.3.0.2}]
`

// specAfter needs a write to every table that Apply fills.
const specAfter = `
hash_key: 00112233445566778899aabbccddeeff
maglev_size: 251
limits: {flows: 4096}
services:
- name: old
  vips: [{address: 10.0.0.1, protocol: udp, port: 80}, {address: 10.0.0.2, protocol: udp, port: 81}]
  backends: [{name: a, address: 10.2.0.2}, {name: c, address: 10.3.0.3}]
- name: many
  vips:
  - {address: 10.0.0.9, protocol: udp, port: 1}
  - {address: 10.0.0.9, protocol: udp, port: 2}
  - {address: 10.0.0.9, protocol: udp, port: 3}
  - {address: 10.0.0.9, protocol: udp, port: 10-19}
  - {address: 10.0.0.9, protocol: udp, port: 20-29}
  - {address: 10.0.0.9, protocol: udp, port: 30-39}
  snat: {addresses: [192.0.2.1, 192.0.2.2], ports: 1024-2047}
  outbound: true
  cid:
    protocols: [dtls12]
    layouts:
    - {length: 8, owner: {offset: 8, bits: 32}, rotation: {offset: 0, bits: 2, value: 0}}
    - {length: 8, owner: {offset: 8, bits: 24}, rotation: {offset: 0, bits: 2, value: 1}, nodes: {d: [2, 80000], e: [1]}}
    - {length: 6, owner: {offset: 8, bits: 32}, rotation: {offset: 0, bits: 2, value: 2}}
  backends: [{name: d, address: 10.2.0.4, nodes: [1, 70000]}, {name: e, address: 10.2.0.5, nodes: [2, 80000]}]
`

// shared is everything that a failed Apply must leave as it was.
func (d *Datapath) shared(t *testing.T) map[string]any {
	t.Helper()
	all := map[string]any{
		"slots": fmt.Sprint(d.state.slots.Of), "services": fmt.Sprint(d.state.services.Of),
		"maglev": fmt.Sprint(d.state.maglev.Free), "owners": fmt.Sprint(d.state.owners.Free),
		"active": d.tables.Control.Active, "snat": fmt.Sprint(d.state.snat),
	}
	for _, name := range []string{bpf.MapVports, bpf.MapVranges, bpf.MapLargeOwners, bpf.MapNatBackends, bpf.MapOutbounds} {
		var entries []string
		var key, value []byte
		for it := d.tables.Maps[name].Iterate(); it.Next(&key, &value); {
			entries = append(entries, fmt.Sprintf("%x=%x", key, value))
		}
		slices.Sort(entries)
		all[name] = entries
	}
	return all
}

// Whichever write fails, nothing of the new generation stays, and a later one succeeds.
func TestRootApplyIsAllOrNothing(t *testing.T) {
	t.Parallel()
	netlabtest.Root(t)
	d, err := Open(Config{Hook: attach.HookTCX, detached: true, manual: true})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	before, after := compile(t, specBefore, d.Caps()), compile(t, specAfter, d.Caps())
	if err := d.Apply(before); err != nil {
		t.Fatal(err)
	}
	was := d.shared(t)
	injected := errors.New("injected")
	tables := map[string]bool{}
	failed := 0
	for ; ; failed++ {
		writes := 0
		d.tables.Fault = func(name string) error {
			tables[name] = true
			if writes++; writes > failed {
				return injected
			}
			return nil
		}
		err := d.Apply(after)
		if err == nil {
			break
		}
		if !errors.Is(err, injected) {
			t.Fatal(err)
		}
		if now := d.shared(t); !reflect.DeepEqual(was, now) {
			t.Fatalf("write %d failed and left\n%v\nwhere there was\n%v", failed, now, was)
		}
	}
	if failed < 15 || len(tables) < 7 {
		t.Errorf("only %d writes, to %v", failed, tables)
	}
	d.tables.Fault = nil
	d.checkVIPs(t)
	if err := d.Apply(before); err != nil {
		t.Fatal(err)
	}
	d.checkVIPs(t)
	now := d.shared(t)
	for _, name := range []string{bpf.MapVports, bpf.MapVranges, bpf.MapLargeOwners, bpf.MapNatBackends, "owners", "services"} {
		if name != "services" && !reflect.DeepEqual(was[name], now[name]) {
			t.Errorf("%s: %v after all, %v at first", name, now[name], was[name])
		}
	}
}

// checkPlaces holds the VIP lines of the active generation to what was built.
func (d *Datapath) checkVIPs(t *testing.T) {
	t.Helper()
	want := d.state.generations[d.state.active].vips
	for index := range uint32(d.tables.Sizes.VIPs) {
		var v bpf.Vip
		if err := d.tables.Maps[bpf.MapVips].Lookup(d.state.active*uint32(d.tables.Sizes.VIPs)+index, &v); err != nil {
			t.Fatal(err)
		}
		if v != want[index] {
			t.Errorf("VIP index %d: %v, want %v", index, v, want[index])
		}
	}
}

// pinned is a data path with pins in a namespace that a test opens again and again.
type pinned struct {
	t      *testing.T
	host   *netlab.Host
	config Config
}

func newPinned(t *testing.T, name string, hook attach.Hook) *pinned {
	topology := netlab.NAT()
	topology.Name = name
	lab := netlabtest.Up(t, topology)
	p := &pinned{t: t, host: lab.Namespace("gateway"), config: Config{
		Interfaces: []string{"veth0", "veth2", "veth3"}, Hook: hook, PinPath: filepath.Join(netlabtest.BPFFS(t), "lb"),
	}}
	return p
}

func (p *pinned) open(spec string) *Datapath {
	p.t.Helper()
	var d *Datapath
	ebpftest.Do(p.t, p.host, func() error {
		var err error
		if d, err = Open(p.config); err != nil {
			return err
		}
		return d.Apply(compile(p.t, spec, d.Caps()))
	})
	return d
}

func (p *pinned) stop() *v1.EBPFStopped {
	p.t.Helper()
	var s *v1.EBPFStopped
	ebpftest.Do(p.t, p.host, func() (err error) {
		s, err = pins.Stop(p.t.Context(), p.config.PinPath, slog.New(slog.DiscardHandler))
		return err
	})
	return s
}

// A second process finds numbers, slots, epochs, counters and flows as the first left them, and cleans up where that
// one died before it was complete.
func TestRootTablesAreTakenOver(t *testing.T) {
	t.Parallel()
	p := newPinned(t, "ebtake", attach.HookTCX)
	d := p.open(specAfter)
	if d.restored {
		t.Error("restored from nothing")
	}
	was := d.shared(t)
	slots := d.state.slots.Of
	count := make([]bpf.ReasonCounts, d.tables.CPUs())
	count[0].ByReason[lb.ReasonMaglev] = bpf.Count{Packets: 5, Bytes: 500}
	number := uint32(d.state.services.Of["many"])
	if err := d.tables.Maps[bpf.MapServiceCounts].Put(number, count); err != nil {
		t.Fatal(err)
	}
	// A process that ended between the switch and the removal of a backend: its slot is still up.
	const leftSlot = 77
	left := &d.tables.Backends[2*leftSlot]
	left.Service, left.State, left.Epoch = 1, uint8(lb.Up), 9
	later := d.now() + 1<<20
	d.tables.Flows[3].Slots[1].Meta = later<<bpf.ExpiryShift | 9<<16 | leftSlot
	d.tables.Flows[3].Slots[1].Fingerprint = 99
	some := slots[maps.IdentityOf(d.state.inForce["old"].Spec.Backends[0])]
	d.tables.Flows[4].Slots[1].Meta = later<<bpf.ExpiryShift | uint64(d.tables.Backends[2*int(some)].Epoch)<<16 | uint64(some)
	d.tables.Flows[4].Slots[1].Fingerprint = 99
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}

	d = p.open(specAfter)
	if !d.restored {
		t.Fatal("nothing was taken over")
	}
	now := d.shared(t)
	for _, name := range []string{"slots", "services", "maglev", bpf.MapNatBackends, "snat"} {
		if !reflect.DeepEqual(was[name], now[name]) {
			t.Errorf("%s: %v, before %v", name, now[name], was[name])
		}
	}
	if len(now[bpf.MapVports].([]string)) != 3 || len(now[bpf.MapLargeOwners].([]string)) != 3 || len(now[bpf.MapVranges].([]string)) != 1 {
		t.Errorf("leftovers: %v %v %v", now[bpf.MapVports], now[bpf.MapVranges], now[bpf.MapLargeOwners])
	}
	if len(now[bpf.MapOutbounds].([]string)) != 2 {
		t.Errorf("two backends may start flows: %v", now[bpf.MapOutbounds])
	}
	d.checkVIPs(t)
	if c := d.Counters().Services["many"][lb.ReasonMaglev]; c != (Count{5, 500}) {
		t.Errorf("counters: %+v", c)
	}
	if left := d.tables.Backends[2*leftSlot]; left.Epoch != 10 || left.State != uint8(lb.Down) {
		t.Errorf("a slot that no one has: %+v", left)
	}
	if maps.Alive(d.tables.Flows[3].Slots[1].Meta, d.now()) || !maps.Alive(d.tables.Flows[4].Slots[1].Meta, d.now()) {
		t.Error("the wrong flows were kept")
	}
	// A removed backend's counts go to its service's past.
	gone := d.state.slots.Of[maps.IdentityOf(d.state.inForce["old"].Spec.Backend("c"))]
	d.tables.BackendCounts[gone] = bpf.BackendCount{In: bpf.Count{Packets: 7, Bytes: 70}, Opened: 3}
	ebpftest.Do(t, p.host, func() error { return d.Apply(compile(t, specBefore, d.Caps())) })
	if left := d.shared(t)[bpf.MapOutbounds].([]string); len(left) != 0 {
		t.Errorf("nobody may start flows: %v", left)
	}
	if large := d.shared(t)[bpf.MapLargeOwners].([]string); len(large) != 0 || d.state.owners.Used() != 0 {
		t.Errorf("no service reads CIDs: %v and %d elements", large, d.state.owners.Used())
	}
	if managed := p.managed(); managed != 2 {
		t.Errorf("%d managed neighbours for two backends", managed)
	}
	c := d.Counters()
	if c.Gone["old"] != (BackendCounts{In: Count{7, 70}, Opened: 3}) || c.Other[lb.ReasonMaglev].Packets < 5 {
		t.Errorf("of what is gone: %+v, %+v", c.Gone, c.Other[lb.ReasonMaglev])
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}

	// Tables of another build are replaced; programs stay attached throughout.
	links := p.links()
	f := d.fixtureOf(t, p.config.PinPath, func(f *pins.Fixture) { f.ABI = "another" })
	d = p.open(specBefore)
	if d.restored || f.ABI != "another" || !slices.Equal(links, p.links()) {
		t.Errorf("tables of another build: restored %t, links %v then %v", d.restored, links, p.links())
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	p.stop()
}

// fixtureOf changes what the pins say of their tables.
func (*Datapath) fixtureOf(t *testing.T, path string, change func(*pins.Fixture)) (f pins.Fixture) {
	t.Helper()
	dir, err := pins.FindDir(path)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Release()
	k, err := pins.LoadStore(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	if err := k.Read(pins.FixtureText, &f); err != nil {
		t.Fatal(err)
	}
	change(&f)
	if err := k.Write(pins.FixtureText, f); err != nil {
		t.Fatal(err)
	}
	return f
}

// links are the ids of the pinned links.
func (p *pinned) links() (ids []link.ID) {
	for _, pin := range (&pins.Dir{Path: p.config.PinPath}).Links() {
		l, err := link.LoadPinnedLink(filepath.Join(p.config.PinPath, "links", pin), nil)
		if err != nil {
			p.t.Fatal(err)
		}
		info, err := l.Info()
		if err != nil {
			p.t.Fatal(err)
		}
		ids = append(ids, info.ID)
		l.Close()
	}
	return ids
}

// Stop leaves no program, map, pin, managed neighbour or offload behind.
func TestRootStopLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, hook := range []attach.Hook{attach.HookTCX, attach.HookXDP} {
		t.Run(hook.String(), func(t *testing.T) {
			t.Parallel()
			p := newPinned(t, "ebstop"+hook.String(), hook)
			d := p.open(specBefore)
			var programs []ebpf.ProgramID
			for id := range d.pins.Programs() {
				programs = append(programs, id)
			}
			var mapIDs []ebpf.MapID
			for _, m := range d.tables.Maps {
				info, err := m.Info()
				if err != nil {
					t.Fatal(err)
				}
				id, _ := info.ID()
				mapIDs = append(mapIDs, id)
			}
			if managed := p.managed(); managed != 2 || len(programs) == 0 {
				t.Errorf("%d managed neighbours, programs %v", managed, programs)
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			if attached := p.attached(); attached != 3 {
				t.Errorf("%d interfaces have a program after Close, want 3", attached)
			}
			s := p.stop()
			if len(s.Links) != 3 || s.Neighbours != 2 || s.Maps < 20 || (s.Offloads == 3) != (hook == attach.HookXDP) {
				t.Errorf("stopped %+v", s)
			}
			if attached, managed := p.attached(), p.managed(); attached != 0 || managed != 0 {
				t.Errorf("left: %d programs on interfaces, %d managed neighbours", attached, managed)
			}
			if _, err := os.Stat(p.config.PinPath); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the pin path is left: %v", err)
			}
			freed := func() (left int) {
				for _, id := range programs {
					if p, err := ebpf.NewProgramFromID(id); err == nil {
						p.Close()
						left++
					}
				}
				for _, id := range mapIDs {
					if m, err := ebpf.NewMapFromID(id); err == nil {
						m.Close()
						left++
					}
				}
				return left
			}
			runtime.GC() // the library keeps constants mapped until then; a process that ends does not
			// The kernel frees behind a grace period.
			for deadline := time.Now().Add(30 * time.Second); freed() > 0; time.Sleep(10 * time.Millisecond) {
				runtime.GC()
				if time.Now().After(deadline) {
					t.Fatalf("%d programs and maps live on", freed())
				}
			}
		})
	}
}

// managed counts neighbours in the gateway that the kernel keeps for us.
func (p *pinned) managed() (n int) {
	p.each(func(l netlink.Link) {
		list, _ := netlink.NeighList(l.Attrs().Index, unix.AF_INET)
		for i := range list {
			if list[i].FlagsExt&netlink.NTF_EXT_MANAGED != 0 {
				n++
			}
		}
	})
	return n
}

// attached counts interfaces of the gateway with a program.
func (p *pinned) attached() (n int) {
	p.each(func(l netlink.Link) {
		if x := l.Attrs().Xdp; x != nil && x.Attached {
			n++
		}
		n += min(len(attach.TCXNeighbours(l.Attrs().Index, nil)), 1)
	})
	return n
}

func (p *pinned) each(f func(netlink.Link)) {
	p.t.Helper()
	ebpftest.Do(p.t, p.host, func() error {
		links, err := netlink.LinkList()
		for _, l := range links {
			f(l)
		}
		return err
	})
}

// Two data paths on one interface: the order is what was requested, and each reports the other.
func TestRootProgramsOnOneHook(t *testing.T) {
	t.Parallel()
	p := newPinned(t, "eborder", attach.HookTCX)
	p.config.Interfaces = []string{"veth0"}
	first := p.open(specBefore)
	defer first.Close()
	other := *p
	other.config.PinPath, other.config.Last = filepath.Join(filepath.Dir(p.config.PinPath), "other"), true
	second := other.open(specBefore)
	defer second.Close()
	if others := second.Report().Interfaces[0].Others; len(others) != 1 {
		t.Errorf("the second sees %q", others)
	}
	order := func() (ids []ebpf.ProgramID) {
		ebpftest.Do(t, p.host, func() error {
			result, err := link.QueryPrograms(link.QueryOptions{Target: first.attached[0].Index, Attach: ebpf.AttachTCXIngress})
			if err == nil {
				for _, program := range result.Programs {
					ids = append(ids, program.ID)
				}
			}
			return err
		})
		return ids
	}
	if ids := order(); len(ids) != 2 || !first.pins.Programs()[ids[0]] || !second.pins.Programs()[ids[1]] {
		t.Errorf("order %v, first %v, second %v", ids, first.pins.Programs(), second.pins.Programs())
	}
	second.Close()
	other.stop()
	if ids := order(); len(ids) != 1 {
		t.Errorf("after one is gone: %v", ids)
	}
	first.Close()
	p.stop()
}

// An interface that is made again, as by a container that restarts, is attached again.
func TestRootInterfaceMadeAgain(t *testing.T) {
	t.Parallel()
	p := newPinned(t, "ebanew", attach.HookTCX)
	d := p.open(specBefore)
	defer p.stop()
	defer d.Close()
	ip := func(args ...string) {
		t.Helper()
		if _, err := p.host.Exec(t.Context(), "ip", args...); err != nil {
			t.Fatal(err)
		}
	}
	follow := func() attach.InterfaceReport {
		d.mu.Lock()
		d.follow()
		d.mu.Unlock()
		return d.Report().Interfaces[1]
	}
	ip("link", "del", "veth2")
	if r := follow(); r.Name != "veth2" || !r.Gone || p.attached() != 2 {
		t.Errorf("a removed interface: %+v, %d attached", r, p.attached())
	}
	ip("link", "add", "veth2", "type", "veth", "peer", "name", "other2")
	if r := follow(); r.Gone || p.attached() != 3 {
		t.Errorf("an interface made again: %+v, %d attached", r, p.attached())
	}
}
