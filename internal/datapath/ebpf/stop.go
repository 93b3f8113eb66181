package ebpf

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/api/v1"
)

// stopPatience is how long a running weir gets to end.
const stopPatience = 15 * time.Second

// Stop ends the data path of a pin path and removes all that it made: links,
// maps, managed neighbours, offload settings. A weir that serves it is asked to
// end first. Nil without an error: there was nothing.
func Stop(ctx context.Context, path string, log *slog.Logger) (*v1.EBPFStopped, error) {
	p, err := findPins(path)
	ended := 0
	if errors.Is(err, ErrInUse) {
		if p, ended, err = endHolder(ctx, path); err != nil {
			return nil, err
		}
	}
	if err != nil || p == nil {
		return nil, err
	}
	defer p.release()
	s := &v1.EBPFStopped{PinPath: p.path, Ended: ended, Links: []string{}}
	for _, pin := range names(p.links()) {
		if err := p.detach(pin); err != nil {
			return s, err
		}
		s.Links = append(s.Links, pin)
	}
	if k, err := loadKeeper(p, nil); err == nil {
		k.undo(s, log)
		k.close()
	} else if !errors.Is(err, os.ErrNotExist) {
		log.Warn("which neighbours and offloads were changed cannot be read; they stay", "error", err)
	}
	s.Maps = len(names(p.maps()))
	return s, p.remove()
}

// endHolder asks the process that has the lock to end, and takes the lock.
func endHolder(ctx context.Context, path string) (*pins, int, error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, 0, fmt.Errorf("pin path: %w", err)
	}
	defer dir.Close()
	pid := lockHolder(dir)
	if pid <= 1 || pid == os.Getpid() {
		return nil, 0, fmt.Errorf("pin path %s is in use by a process that cannot be seen from here; end it first", path)
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return nil, 0, fmt.Errorf("end %s: %w", holderName(dir), err)
	}
	ctx, cancel := context.WithTimeout(ctx, stopPatience)
	defer cancel()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		p, err := findPins(path)
		if !errors.Is(err, ErrInUse) {
			return p, pid, err
		}
		select {
		case <-ctx.Done():
			return nil, 0, fmt.Errorf("process %d does not end after SIGTERM: %w", pid, ctx.Err())
		case <-ticker.C:
		}
	}
}

// undo takes back what was changed on the machine.
func (k *keeper) undo(s *v1.EBPFStopped, log *slog.Logger) {
	var f fixture
	home := thisNetns()
	if err := k.read(textFixture, &f); err == nil && f.Netns != 0 {
		home = f.Netns
	}
	var n neighbour
	var one uint32
	var neighbours []neighbour
	for it := k.neighbours.Iterate(); it.Next(&n, &one); {
		neighbours = append(neighbours, n)
	}
	if len(neighbours) > 0 {
		if err := inNetns(home, func() error {
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
		err := inNetns(o.Netns, func() error {
			l, err := netlink.LinkByIndex(int(o.Index))
			if err != nil {
				return nil // the interface is gone, and the setting with it
			}
			if err := setOffload(l.Attrs().Name, false); err != nil {
				return err
			}
			s.Offloads++
			return nil
		})
		if err != nil && !errors.Is(err, errNoNetns) {
			log.Warn("GRO stays on", "interface_index", o.Index, "error", err)
		}
	}
}

// dropManaged deletes a neighbour that is still a managed one; the kernel
// resolves it anew when somebody sends there.
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

// releaseNeighbours gives those back that no backend needs any more. The caller holds mu.
func (d *Datapath) releaseNeighbours() {
	var n neighbour
	var one uint32
	var unused []neighbour
	for it := d.keeper.neighbours.Iterate(); it.Next(&n, &one); {
		if !d.hops.Uses(int(n.Index), netip.AddrFrom16(n.Address).Unmap()) {
			unused = append(unused, n)
		}
	}
	for _, n := range unused {
		dropManaged(d.links, n)
		d.keeper.neighbours.Delete(n)
	}
}

var errNoNetns = errors.New("the network namespace is gone or has no name and no process")

// inNetns runs f in the network namespace of an inode number.
func inNetns(inode uint64, f func() error) error {
	if inode == thisNetns() {
		return f()
	}
	path := findNetns(func(path string) bool {
		var st syscall.Stat_t
		return syscall.Stat(path, &st) == nil && st.Ino == inode
	})
	if path != "" {
		return withNetns(path, f)
	}
	return errNoNetns
}

// findNetns looks for a namespace among the named ones and those of processes, and returns the path to it or "".
func findNetns(match func(path string) bool) string {
	paths, _ := filepath.Glob("/run/netns/*") // the patterns are right
	processes, _ := filepath.Glob("/proc/[0-9]*/ns/net")
	for _, path := range append(paths, processes...) {
		if match(path) {
			return path
		}
	}
	return ""
}

// withNetns runs f on a thread of its own in the namespace that a path leads to.
func withNetns(path string, f func() error) error {
	ended := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, and takes the other namespace with it
		ns, err := netns.GetFromPath(path)
		if err == nil {
			defer ns.Close()
			err = netns.Set(ns)
		}
		if err == nil {
			err = f()
		}
		ended <- err
	}()
	return <-ended
}
