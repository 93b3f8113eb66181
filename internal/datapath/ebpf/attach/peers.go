package attach

import (
	"fmt"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A veth takes redirected frames only if the end that receives them polls
// (NAPI). Without an XDP program there, GRO turns polling on; with neither,
// frames vanish and no counter says so.

// WakePeers turns GRO on at the other ends of the veth pairs among the
// interfaces, in whatever namespace they are. It returns a warning, with the
// command that fixes it, for each end it cannot reach. note is called in an
// end's namespace before its setting is changed.
func WakePeers(interfaces []Interface, note func(index int) error) []string {
	xdp := false
	for _, a := range interfaces {
		xdp = xdp || a.Hook == HookXDP
	}
	if !xdp {
		return nil
	}
	var warnings []string
	for _, a := range interfaces {
		if a.Local {
			if warning := wakePeer(a.Name, note); warning != "" {
				warnings = append(warnings, warning)
			}
		}
	}
	return warnings
}

func wakePeer(name string, note func(index int) error) string {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Sprintf("other end of %s: %v", name, err)
	}
	peer, nsid := l.Attrs().ParentIndex, l.Attrs().NetNsID
	if nsid < 0 { // the same namespace
		if err := wake(peer, note); err != nil {
			return fmt.Sprintf("the other end of %s drops what is redirected to it (%v): run ethtool -K PEER gro on", name, err)
		}
		return ""
	}
	err = inNumbered(nsid, func() error { return wake(peer, note) })
	if err != nil {
		return fmt.Sprintf("the other end of %s (interface %d of a namespace out of reach: %v) may drop what is redirected to it: run ethtool -K PEER gro on there", name, peer, err)
	}
	return ""
}

// wake turns GRO on at an interface of the calling thread's namespace.
func wake(index int, note func(index int) error) error {
	l, err := netlink.LinkByIndex(index)
	if err != nil {
		return err
	}
	if l.Attrs().Xdp != nil && l.Attrs().Xdp.Attached {
		return nil // polls already
	}
	name := l.Attrs().Name
	if on, err := groOn(name); err != nil || on {
		return err
	}
	if err := note(index); err != nil {
		return err
	}
	return SetGRO(name, true)
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

// ethtool runs one command on an interface of the calling thread's namespace.
func ethtool(name string, v *ethtoolValue) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	request := ifreq{data: unsafe.Pointer(v)}
	copy(request.name[:unix.IFNAMSIZ-1], name)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request))); errno != 0 {
		return fmt.Errorf("GRO of %s: %w", name, errno)
	}
	return nil
}

// groOn reads whether GRO is on.
func groOn(name string) (bool, error) {
	v := ethtoolValue{command: ethtoolGetGRO}
	err := ethtool(name, &v)
	return v.data != 0, err
}

// SetGRO turns GRO on or off.
func SetGRO(name string, on bool) error {
	v := ethtoolValue{command: ethtoolSetGRO}
	if on {
		v.data = 1
	}
	if err := ethtool(name, &v); err != nil {
		return err
	}
	now, err := groOn(name)
	if err == nil && now != on {
		err = fmt.Errorf("GRO of %s does not change", name)
	}
	return err
}
