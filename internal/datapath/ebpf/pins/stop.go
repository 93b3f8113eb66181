package pins

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"

	"github.com/weir-lb/weir/api/v1"
)

// stopTimeout is how long a running weir gets to end, killedTimeout how long one that was killed.
const (
	stopTimeout   = 15 * time.Second
	killedTimeout = time.Second
)

// Stop ends the data path of a pin path and removes all that it made: links,
// maps, managed neighbours, offload settings. A weir that serves it is asked to
// end first. Nil without an error: there was nothing.
func Stop(ctx context.Context, path string, log *slog.Logger) (*v1.EBPFStopped, error) {
	p, err := FindDir(path)
	ended := 0
	if errors.Is(err, ErrInUse) {
		if p, ended, err = endHolder(ctx, path); err != nil {
			return nil, err
		}
	}
	if err != nil || p == nil {
		return nil, err
	}
	return p.end(ended, log)
}

// End is Stop for a pin path that no process serves, if it belongs to this network namespace and this process may look into it. Else it does
// nothing.
func End(path string, log *slog.Logger) error {
	p, err := FindDir(path)
	if errors.Is(err, ErrInUse) || errors.Is(err, os.ErrPermission) || err == nil && p == nil {
		return nil
	}
	if err != nil {
		return err
	}
	var f Fixture
	if k, err := LoadStore(p, nil); err == nil {
		err = k.Read(FixtureText, &f)
		k.Close()
		if err == nil && f.Netns != attach.NamespaceID() {
			p.Release()
			return nil
		}
	}
	_, err = p.end(0, log)
	return err
}

// end detaches and removes what is kept, and releases the directory. ended is the process that was ended for this.
func (p *Dir) end(ended int, log *slog.Logger) (*v1.EBPFStopped, error) {
	defer p.Release()
	s := &v1.EBPFStopped{PinPath: p.Path, Ended: ended, Links: []string{}}
	for _, pin := range names(p.linksDir()) {
		if err := p.Detach(pin); err != nil {
			return s, err
		}
		s.Links = append(s.Links, pin)
	}
	if k, err := LoadStore(p, nil); err == nil {
		k.Undo(s, log)
		k.Close()
	} else if !errors.Is(err, os.ErrNotExist) {
		log.Warn("which neighbours and offloads were changed cannot be read; they stay", "error", err)
	}
	s.Maps = len(names(p.MapsDir()))
	return s, p.Remove()
}

// endHolder asks the process that has the lock to end, and takes the lock.
func endHolder(ctx context.Context, path string) (*Dir, int, error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, 0, fmt.Errorf("pin path: %w", err)
	}
	defer dir.Close()
	pid := LockHolder(dir)
	if pid <= 1 || pid == os.Getpid() {
		p, err := await(ctx, path, killedTimeout) // one that was killed keeps its lock for some milliseconds
		if errors.Is(err, ErrInUse) {
			err = fmt.Errorf("pin path %s is in use by a process that cannot be seen from here; end it first", path)
		}
		return p, 0, err
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return nil, 0, fmt.Errorf("end %s: %w", HolderName(dir), err)
	}
	p, err := await(ctx, path, stopTimeout)
	if errors.Is(err, ErrInUse) {
		err = fmt.Errorf("process %d does not end after SIGTERM", pid)
	}
	return p, pid, err
}

// await takes the lock once it is free. It returns ErrInUse when the time is over.
func await(ctx context.Context, path string, timeout time.Duration) (*Dir, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		p, err := FindDir(path)
		if !errors.Is(err, ErrInUse) {
			return p, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-ticker.C:
		}
	}
}

// Undo takes back what was changed on the machine.
func (k *Store) Undo(s *v1.EBPFStopped, log *slog.Logger) {
	var f Fixture
	home := attach.NamespaceID()
	if err := k.Read(FixtureText, &f); err == nil && f.Netns != 0 {
		home = f.Netns
	}
	var n neighbour
	var one uint32
	var neighbours []neighbour
	for it := k.neighbours.Iterate(); it.Next(&n, &one); {
		neighbours = append(neighbours, n)
	}
	if len(neighbours) > 0 {
		if err := attach.InNamespaceOf(home, func() error {
			for _, n := range neighbours {
				if dropManaged(&netlink.Handle{}, n) {
					s.Neighbours++
				}
			}
			return nil
		}); err != nil {
			log.Warn("managed neighbours stay", "count", len(neighbours), "error", err)
		}
	}
	var o offload
	for it := k.offloads.Iterate(); it.Next(&o, &one); {
		err := attach.InNamespaceOf(o.Netns, func() error {
			l, err := netlink.LinkByIndex(int(o.Index))
			if err != nil {
				return nil // the interface is gone, and the setting with it
			}
			if err := attach.SetGRO(l.Attrs().Name, false); err != nil {
				return err
			}
			s.Offloads++
			return nil
		})
		if err != nil && !errors.Is(err, attach.ErrNoNamespace) {
			log.Warn("GRO stays on", "interface_index", o.Index, "error", err)
		}
	}
}

// dropManaged deletes a neighbour that is still a managed one; the kernel
// resolves it again when somebody sends there.
func dropManaged(h *netlink.Handle, n neighbour) bool {
	address := netip.AddrFrom16(n.Address).Unmap()
	family := unix.AF_INET
	if address.Is6() {
		family = unix.AF_INET6
	}
	list, err := h.NeighList(int(n.Index), family)
	if err != nil {
		return false
	}
	for i := range list {
		if a, _ := netip.AddrFromSlice(list[i].IP); a.Unmap() == address && list[i].FlagsExt&netlink.NTF_EXT_MANAGED != 0 {
			return h.NeighDel(&netlink.Neigh{LinkIndex: int(n.Index), Family: family, IP: net.IP(address.AsSlice())}) == nil
		}
	}
	return false
}

// ReleaseNeighbours gives those back that no program uses any more.
func (k *Store) ReleaseNeighbours(links *netlink.Handle, used func(index int, address netip.Addr) bool) {
	var n neighbour
	var one uint32
	var unused []neighbour
	for it := k.neighbours.Iterate(); it.Next(&n, &one); {
		if !used(int(n.Index), netip.AddrFrom16(n.Address).Unmap()) {
			unused = append(unused, n)
		}
	}
	for _, n := range unused {
		dropManaged(links, n)
		k.neighbours.Delete(n)
	}
}
