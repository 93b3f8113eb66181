package attach

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/weir-lb/weir/internal/datapath/ebpf/nexthop"
)

// NamespaceID identifies the network namespace of the calling thread.
func NamespaceID() uint64 {
	var st syscall.Stat_t
	if syscall.Stat("/proc/thread-self/ns/net", &st) != nil {
		return 0
	}
	return st.Ino
}

// InNamespace runs f in a network namespace. To enter another one than the caller's needs CAP_SYS_ADMIN.
func InNamespace(ns netns.NsHandle, f func() error) error {
	if nexthop.Here(ns) {
		return f()
	}
	ended := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := netns.Set(ns)
		if err == nil {
			err = f()
		}
		ended <- err
	}()
	return <-ended
}

var ErrNoNamespace = errors.New("the network namespace is gone or has no name and no process")

// InNamespaceOf runs f in the network namespace of an inode number.
func InNamespaceOf(inode uint64, f func() error) error {
	if inode == NamespaceID() {
		return f()
	}
	path := findNamespace(func(path string) bool {
		var st syscall.Stat_t
		return syscall.Stat(path, &st) == nil && st.Ino == inode
	})
	if path != "" {
		return inNamespaceAt(path, f)
	}
	return ErrNoNamespace
}

// inNumbered runs f in the namespace that the calling thread's knows by a
// number, found among the named ones and those of processes.
func inNumbered(nsid int, f func() error) error {
	if path := findNamespace(func(path string) bool { return isNamespace(path, nsid) }); path != "" {
		return inNamespaceAt(path, f)
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

// findNamespace looks for a namespace among the named ones and those of processes, and returns the path to it or "".
func findNamespace(match func(path string) bool) string {
	paths, _ := filepath.Glob("/run/netns/*") // the patterns are right
	processes, _ := filepath.Glob("/proc/[0-9]*/ns/net")
	for _, path := range append(paths, processes...) {
		if match(path) {
			return path
		}
	}
	return ""
}

// inNamespaceAt runs f on a thread of its own in the namespace that a path leads to.
func inNamespaceAt(path string, f func() error) error {
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
