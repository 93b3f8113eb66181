package decap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/datapath/ebpf/nexthop"
)

// Hook says where the program runs.
type Hook uint8

const (
	Auto Hook = iota // TCX on software links such as veth, XDP on network cards
	XDP
	TCX
)

func (h Hook) String() string { return [...]string{"auto", "xdp", "tcx"}[h] }

// ParseHook reads auto, xdp or tcx.
func ParseHook(s string) (Hook, error) {
	for h := Auto; h <= TCX; h++ {
		if h.String() == s {
			return h, nil
		}
	}
	return Auto, fmt.Errorf("no hook %q; write auto, xdp or tcx", s)
}

// Config says what to open.
type Config struct {
	// Interface that tunnelled packets come in on.
	Interface string
	Hook      Hook
	// From are the balancers' outer sources, at least one.
	From []netip.Prefix
}

// Decap is an attached program. Counters and Close may be called while Run runs.
type Decap struct {
	hook       Hook
	why        string
	collection *ebpf.Collection
	link       link.Link
	namespace  netns.NsHandle
	names      []string
}

// Open loads the program and attaches it in the network namespace of the
// calling thread. Tunnels to any of its addresses are opened from then on.
func Open(c Config) (*Decap, error) {
	if len(c.From) == 0 {
		return nil, errors.New("no source is allowed: name the balancers that may send through the tunnel")
	}
	l, err := netlink.LinkByName(c.Interface)
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", c.Interface, err)
	}
	d := &Decap{hook: c.Hook, why: "requested", namespace: netns.None()}
	if d.hook == Auto {
		d.hook, d.why = XDP, "a network card: packets before the stack"
		if l.Type() != "device" {
			d.hook, d.why = TCX, l.Type()+": large segments of local senders stay whole"
		}
	}
	if err := d.load(c, l.Attrs().Index); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// Hook is where the program runs, and why there.
func (d *Decap) Hook() (Hook, string) { return d.hook, d.why }

func (d *Decap) load(c Config, index int) error {
	if err := rlimit.RemoveMemlock(); err != nil {
		return fmt.Errorf("lift the limit on locked memory: %w", err)
	}
	read, name := loadXdp, "weir_decap_xdp"
	if d.hook == TCX {
		read, name = loadTcx, "weir_decap_tcx"
	}
	spec, err := read()
	if err != nil {
		return fmt.Errorf("read the %s object: %w", d.hook, err)
	}
	if d.names, err = outcomes(spec); err != nil {
		return err
	}
	if d.collection, err = ebpf.NewCollection(spec); err != nil {
		return fmt.Errorf("load the %s program: %w", d.hook, err)
	}
	for _, p := range c.From {
		if err := d.collection.Maps["allowed"].Put(prefixKey(p), uint32(1)); err != nil {
			return fmt.Errorf("allow %s: %w", p, err)
		}
	}
	if d.namespace, err = netns.Get(); err != nil {
		return fmt.Errorf("name the network namespace: %w", err)
	}
	if err := d.fillLocals(); err != nil {
		return err
	}
	program := d.collection.Programs[name]
	if d.hook == TCX {
		d.link, err = link.AttachTCX(link.TCXOptions{Interface: index, Program: program, Attach: ebpf.AttachTCXIngress})
	} else {
		d.link, err = link.AttachXDP(link.XDPOptions{Interface: index, Program: program, Flags: link.XDPDriverMode})
	}
	if err != nil {
		return fmt.Errorf("attach %s to %s: %w; another program may be there (ip link show)", d.hook, c.Interface, err)
	}
	return nil
}

// Run follows the machine's addresses until ctx ends. Packets are opened
// without it too, to the addresses of the time of Open.
func (d *Decap) Run(ctx context.Context) error {
	done := make(chan struct{})
	defer close(done)
	changes := make(chan netlink.AddrUpdate, 64)
	options := netlink.AddrSubscribeOptions{ErrorCallback: func(error) {}}
	if !nexthop.Here(d.namespace) {
		options.Namespace = &d.namespace
	}
	if err := netlink.AddrSubscribeWithOptions(changes, done, options); err != nil {
		return fmt.Errorf("follow addresses: %w", err)
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case change, ok := <-changes:
			if !ok {
				if ctx.Err() != nil {
					return nil
				}
				return errors.New("the kernel's events of addresses ended")
			}
			if err := d.setLocal(change.LinkAddress.IP, change.NewAddr); err != nil {
				return err
			}
			if !change.NewAddr && d.isLocal(change.LinkAddress.IP) { // on another interface too
				if err := d.setLocal(change.LinkAddress.IP, true); err != nil {
					return err
				}
			}
		}
	}
}

// isLocal reports whether the namespace still has an address.
func (d *Decap) isLocal(ip net.IP) bool {
	namespace := netns.None()
	if !nexthop.Here(d.namespace) {
		namespace = d.namespace
	}
	h, err := netlink.NewHandleAt(namespace, unix.NETLINK_ROUTE)
	if err != nil {
		return false
	}
	defer h.Close()
	list, err := h.AddrList(nil, unix.AF_UNSPEC)
	return err == nil && slices.ContainsFunc(list, func(a netlink.Addr) bool { return a.IP.Equal(ip) })
}

func (d *Decap) fillLocals() error {
	list, err := netlink.AddrList(nil, unix.AF_UNSPEC)
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range list {
		if err := d.setLocal(a.IP, true); err != nil {
			return err
		}
	}
	return nil
}

func (d *Decap) setLocal(ip net.IP, there bool) error {
	a, ok := netip.AddrFromSlice(ip)
	if !ok {
		return nil
	}
	key, locals := xdpLocal{Addr: a.As16()}, d.collection.Maps["locals"]
	if there {
		if err := locals.Put(key, uint32(1)); err != nil {
			return fmt.Errorf("note address %s: %w", a, err)
		}
		return nil
	}
	if err := locals.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("forget address %s: %w", a, err)
	}
	return nil
}

// Counters returns frames and their bytes, tunnel included, by outcome (ipip, gue, refused, malformed, …).
func (d *Decap) Counters() (map[string]v1.Count, error) {
	counts := make(map[string]v1.Count, len(d.names))
	for i, name := range d.names {
		var perCPU []xdpTunnelCount
		if err := d.collection.Maps["tunnel_counts"].Lookup(uint32(i), &perCPU); err != nil {
			return nil, fmt.Errorf("read the counter %s: %w", name, err)
		}
		var sum v1.Count
		for _, c := range perCPU {
			sum.Packets += c.Packets
			sum.Bytes += c.Bytes
		}
		counts[name] = sum
	}
	return counts, nil
}

// Close detaches the program.
func (d *Decap) Close() error {
	var err error
	if d.link != nil {
		err = d.link.Close()
	}
	if d.collection != nil {
		d.collection.Close()
	}
	if d.namespace.IsOpen() {
		d.namespace.Close()
	}
	return err
}

func prefixKey(p netip.Prefix) xdpPrefix {
	bits := p.Bits()
	if p.Addr().Is4() {
		bits += 96
	}
	return xdpPrefix{Bits: uint32(bits), Addr: p.Masked().Addr().As16()}
}

// outcomes reads the names of enum decap_end.
func outcomes(spec *ebpf.CollectionSpec) ([]string, error) {
	var e *btf.Enum
	if err := spec.Types.TypeByName("decap_end", &e); err != nil {
		return nil, fmt.Errorf("names of the counters: %w", err)
	}
	var names []string
	for _, v := range e.Values {
		if v.Name != "DECAP_END" {
			names = append(names, strings.ToLower(strings.TrimPrefix(v.Name, "DECAP_")))
		}
	}
	return names, nil
}
