package ebpf

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"unsafe"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// A veth takes redirected frames only if the end that receives them polls
// (NAPI). Without an XDP program there, GRO turns polling on; with neither,
// frames vanish and no counter says so.

// wakePeers turns GRO on at the other ends of the veth pairs among the
// interfaces, in whatever namespace they are. It returns a warning, with the
// command that cures it, for each end it cannot reach.
func wakePeers(interfaces []attachment) []string {
	xdp := false
	for _, a := range interfaces {
		xdp = xdp || a.hook == HookXDP
	}
	if !xdp {
		return nil
	}
	var warnings []string
	for _, a := range interfaces {
		if a.local {
			if warning := wakePeer(a.name); warning != "" {
				warnings = append(warnings, warning)
			}
		}
	}
	return warnings
}

func wakePeer(name string) string {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Sprintf("other end of %s: %v", name, err)
	}
	peer, nsid := l.Attrs().ParentIndex, l.Attrs().NetNsID
	if nsid < 0 { // the same namespace
		if err := wake(peer); err != nil {
			return fmt.Sprintf("the other end of %s drops what is redirected to it (%v): run ethtool -K PEER gro on", name, err)
		}
		return ""
	}
	err = inNamespace(nsid, func() error { return wake(peer) })
	if err != nil {
		return fmt.Sprintf("the other end of %s (interface %d of a namespace out of reach: %v) may drop what is redirected to it: run ethtool -K PEER gro on there", name, peer, err)
	}
	return ""
}

// wake turns GRO on at an interface of the calling thread's namespace.
func wake(index int) error {
	l, err := netlink.LinkByIndex(index)
	if err != nil {
		return err
	}
	if l.Attrs().Xdp != nil && l.Attrs().Xdp.Attached {
		return nil // polls already
	}
	return setGRO(l.Attrs().Name)
}

// ethtool commands (linux/ethtool.h).
const (
	ethtoolGetGRO = 0x2b
	ethtoolSetGRO = 0x2c
)

type ethtoolValue struct{ command, data uint32 }

type ifreq struct {
	name [unix.IFNAMSIZ]byte
	data unsafe.Pointer
	_    [16]byte
}

func setGRO(name string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for _, v := range []ethtoolValue{{ethtoolSetGRO, 1}, {ethtoolGetGRO, 0}} {
		request := ifreq{data: unsafe.Pointer(&v)}
		copy(request.name[:unix.IFNAMSIZ-1], name)
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request))); errno != 0 {
			return fmt.Errorf("turn GRO on at %s: %w", name, errno)
		}
		if v.command == ethtoolGetGRO && v.data == 0 {
			return fmt.Errorf("GRO stays off at %s", name)
		}
	}
	return nil
}

// inNamespace runs f in the namespace that the calling thread's knows by a
// number, found among the named ones and those of processes.
func inNamespace(nsid int, f func() error) error {
	paths, _ := filepath.Glob("/run/netns/*")
	processes, _ := filepath.Glob("/proc/[0-9]*/ns/net")
	for _, path := range append(paths, processes...) {
		if !isNamespace(path, nsid) {
			continue
		}
		ended := make(chan error, 1)
		go func() {
			// The thread is not unlocked: it ends with the goroutine, and takes
			// the other namespace with it.
			runtime.LockOSThread()
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
	return fmt.Errorf("no name or process leads to namespace %s", strconv.Itoa(nsid))
}

func isNamespace(path string, nsid int) bool {
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	got, err := netlink.GetNetNsIdByFd(int(file.Fd()))
	return err == nil && got == nsid
}
