package readiness

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/control/announce/vrrp"
	"github.com/weir-lb/weir/internal/finding"
	"github.com/weir-lb/weir/internal/steering/lb"
)

const (
	minWait  = 1100 * time.Millisecond // the interval of most VRRP programs is a second
	maxWait  = 4 * time.Second
	maxFrame = 2048 // an advertisement fits into a packet of 1500 bytes
	maxRead  = 4096 // packets of an interface and family; what a flood adds is left out
	ethernet = 14   // bytes of its header
	ip6Bytes = 40
)

// packet is an advertisement as it arrived.
type packet struct {
	from, to netip.Addr
	hopLimit uint8
	bytes    []byte
}

// watched is a packet socket on an interface. A packet socket joins no group, so nothing is sent for it.
type watched struct {
	fd    int
	name  string
	is6   bool
	order []packet // in which they arrived
}

// peers listens for a while to what other machines advertise: the longest interval, and half of it for those that are late. Interfaces on which
// no virtual router can run are left out.
func (e *examination) peers() error {
	if e.Privilege != nil {
		return nil // that is a finding already
	}
	longest := time.Duration(0)
	var all []*watched
	defer func() {
		for _, w := range all {
			unix.Close(w.fd)
		}
	}()
	for i := range e.Announce.VRRP {
		v := &e.Announce.VRRP[i]
		link, err := netlink.LinkByName(v.Interface)
		if err != nil || e.unfit[v.Interface] {
			continue // another check reports it
		}
		longest = max(longest, v.Interval)
		err = families(v, func(is6 bool) error {
			if slices.ContainsFunc(all, func(w *watched) bool { return w.name == v.Interface && w.is6 == is6 }) {
				return nil
			}
			w, err := watch(link, is6)
			if err == nil {
				all = append(all, w)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("listen on %s: %w", v.Interface, err)
		}
	}
	if len(all) == 0 {
		return nil
	}
	wait := min(max(longest*3/2, minWait), maxWait)
	select {
	case <-e.ctx.Done():
		return e.ctx.Err()
	case <-time.After(wait):
	}
	for _, w := range all {
		w.drain()
	}
	e.compare(all, wait)
	return nil
}

// watch opens a packet socket that takes VRRP of one family alone, also where the card filters multicast.
func watch(link netlink.Link, is6 bool) (*watched, error) {
	kind, offset := uint16(unix.ETH_P_IP), uint32(ethernet+9) // of the protocol
	if is6 {
		kind, offset = unix.ETH_P_IPV6, ethernet+6
	}
	program, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: offset, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: vrrp.Protocol, SkipTrue: 1},
		bpf.RetConstant{Val: maxFrame},
		bpf.RetConstant{Val: 0},
	})
	if err != nil {
		return nil, err
	}
	raw := make([]unix.SockFilter, len(program))
	for i, p := range program {
		raw[i] = unix.SockFilter{Code: p.Op, Jt: p.Jt, Jf: p.Jf, K: p.K}
	}
	// It takes nothing before its filter is there.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	index := link.Attrs().Index
	all := &unix.PacketMreq{Ifindex: int32(index), Type: unix.PACKET_MR_ALLMULTI}
	err = errors.Join(
		unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(raw)), Filter: &raw[0]}),
		unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, all),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: kind<<8 | kind>>8, Ifindex: index}))
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &watched{fd: fd, name: link.Attrs().Name, is6: is6}, nil
}

// drain reads what has arrived.
func (w *watched) drain() {
	frame := make([]byte, maxFrame)
	for range maxRead {
		n, _, err := unix.Recvfrom(w.fd, frame, 0)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil: // EAGAIN: that was all
			return
		}
		if p, ok := parse(frame[:n], w.is6); ok {
			p.bytes = slices.Clone(p.bytes)
			w.order = append(w.order, p)
		}
	}
}

// parse takes the headers off a frame.
func parse(frame []byte, is6 bool) (p packet, ok bool) {
	header := 20
	if is6 {
		header = ip6Bytes
	}
	if len(frame) < ethernet+header {
		return p, false
	}
	ip := frame[ethernet:]
	length := 0
	if is6 {
		p.hopLimit, length = ip[7], ip6Bytes+int(binary.BigEndian.Uint16(ip[4:]))
		p.from, p.to = netip.AddrFrom16([16]byte(ip[8:24])), netip.AddrFrom16([16]byte(ip[24:40]))
	} else {
		header, length, p.hopLimit = int(ip[0]&0xf)*4, int(binary.BigEndian.Uint16(ip[2:])), ip[8]
		p.from, p.to = netip.AddrFrom4([4]byte(ip[12:16])), netip.AddrFrom4([4]byte(ip[16:20]))
	}
	if header < 20 || length < header || length > len(ip) { // without the padding of a short frame
		return p, false
	}
	p.bytes = ip[header:length]
	return p, true
}

// compare tells what other machines say of our virtual routers, once for each machine.
func (e *examination) compare(all []*watched, wait time.Duration) {
	before := len(e.Findings)
	var alike []string
	for i := range e.Announce.VRRP {
		v := &e.Announce.VRRP[i]
		for _, w := range all {
			told := map[netip.Addr]bool{}
			for _, p := range w.order {
				if w.name != v.Interface || told[p.from] || len(p.bytes) < 2 || p.bytes[1] != v.ID {
					continue
				}
				told[p.from] = true
				if e.judge(v, w.is6, p) {
					alike = append(alike, fmt.Sprintf("%s on %s advertises virtual router %d with the same addresses", p.from, w.name, v.ID))
				}
			}
		}
	}
	switch {
	case !e.Silent(before):
	case len(alike) > 0:
		e.OK("%s", alike[0])
	default:
		e.OK("no other machine advertised one of %d virtual routers within %s", len(e.Announce.VRRP), wait)
	}
}

// judge reports whether an advertisement is that of a machine that is configured alike. If it is not, that is a finding.
func (e *examination) judge(v *lb.VRRP, is6 bool, p packet) bool {
	a, err := vrrp.Parse(p.bytes, p.from, p.to)
	var ours []netip.Addr
	for _, address := range v.Addresses {
		if address.Is6() == is6 {
			ours = append(ours, address)
		}
	}
	sorted := func(list []netip.Addr) []netip.Addr {
		return slices.SortedFunc(slices.Values(list), netip.Addr.Compare)
	}
	switch {
	case errors.Is(err, vrrp.ErrVersion):
		e.Bad(finding.Fail, "vrrp_version 3 there (in global_defs of keepalived), or another vrid here",
			"%s on %s advertises virtual router %d in version %d of VRRP, which is not understood here: two machines are active",
			p.from, v.Interface, v.ID, p.bytes[0]>>4)
	case err != nil:
		e.Bad(finding.Fail, "update the VRRP program there, or write another vrid here",
			"%s on %s sends advertisements of virtual router %d that are refused: %v", p.from, v.Interface, v.ID, err)
	case p.hopLimit != vrrp.HopLimit:
		e.Bad(finding.Fail, "let no router forward IP protocol 112, or write another vrid here",
			"%s advertises virtual router %d on %s with TTL %d, which is refused: it has passed a router, or is forged",
			p.from, v.ID, v.Interface, p.hopLimit)
	case !slices.Equal(sorted(a.Addresses), sorted(ours)):
		e.Bad(finding.Fail, "write another vrid here if that is another group of machines, else the same addresses on all",
			"%s on %s advertises virtual router %d with the addresses %v, not %v", p.from, v.Interface, v.ID, shortened(a.Addresses), shortened(ours))
	default:
		return true
	}
	return false
}

// shortened limits a list to what fits a line.
func shortened(all []netip.Addr) []netip.Addr { return all[:min(len(all), 8)] }
