package netlab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	netnsDir = "/run/netns"
	prefix   = "weirlab-"
)

func ownedName(lab string, pid int, number uint32, namespace string) string {
	return fmt.Sprintf("%s%s.%d.%d.%s", prefix, lab, pid, number, namespace)
}

func keptName(lab, namespace string) string {
	return fmt.Sprintf("%s%s.%s", prefix, lab, namespace)
}

// owned matches the name of a namespace that ends with a process; the group is its PID.
var owned = regexp.MustCompile(`^` + prefix + `[a-z0-9-]+\.([0-9]+)\.[0-9]+\.[a-z0-9-]+$`)

// kept matches the name of a namespace that outlives its process; the group is the lab's name.
var kept = regexp.MustCompile(`^` + prefix + `([a-z0-9-]+)\.[a-z0-9-]+$`)

// Kept lists the names of the kept labs that are up, in order.
func Kept() ([]string, error) {
	entries, err := namespaces()
	var names []string
	for _, entry := range entries {
		if match := kept.FindStringSubmatch(entry); match != nil {
			names = append(names, match[1])
		}
	}
	slices.Sort(names)
	return slices.Compact(names), err
}

// Remove takes down the kept lab of that name, whatever topology it was built from and even if only a part of it is
// left, and ends the processes inside. It returns the namespaces removed.
func Remove(name string) ([]string, error) {
	entries, err := namespaces()
	if err != nil {
		return nil, err
	}
	var removed []string
	var errs []error
	for _, entry := range entries {
		if match := kept.FindStringSubmatch(entry); match != nil && match[1] == name {
			errs = append(errs, endProcesses(entry), removeNamespace(entry))
			removed = append(removed, entry)
		}
	}
	return removed, errors.Join(errs...)
}

// namespaces lists the names under /run/netns.
func namespaces() ([]string, error) {
	entries, err := os.ReadDir(netnsDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for labs: %w", err)
	}
	names := make([]string, 0, len(entries))
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names, nil
}

// Sweep removes the namespaces, and ends the processes inside, of labs whose process has ended, and returns their
// names. Kept labs stay. It may run at the same time as other processes that use netlab.
func Sweep() ([]string, error) {
	entries, err := namespaces()
	if err != nil {
		return nil, err
	}
	var swept []string
	var errs []error
	for _, entry := range entries {
		match := owned.FindStringSubmatch(entry)
		if match == nil {
			continue
		}
		pid, err := strconv.Atoi(match[1])
		if err != nil || alive(pid) {
			continue
		}
		errs = append(errs, endProcesses(entry))
		switch err := removeNamespace(entry); {
		case errors.Is(err, unix.EBUSY): // under a mount that came later (see shareMounts): no one can reach it
		case err != nil:
			errs = append(errs, err)
		default:
			swept = append(swept, entry)
		}
	}
	return swept, errors.Join(errs...)
}

func alive(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}

// shareMounts makes /run/netns a shared mount of its own, as ip-netns(8) does before it binds its first namespace there.
// Without it, the first `ip netns add` on the machine would mount the directory over the names that are bound by then,
// and no one could remove them any more.
func shareMounts() error {
	if err := os.MkdirAll(netnsDir, 0o755); err != nil {
		return err
	}
	share := func() error { return unix.Mount("", netnsDir, "none", unix.MS_SHARED|unix.MS_REC, "") }
	err := share()
	if errors.Is(err, unix.EINVAL) { // no mount yet
		if err = unix.Mount(netnsDir, netnsDir, "none", unix.MS_BIND|unix.MS_REC, ""); err == nil {
			err = share()
		}
	}
	if err != nil {
		return fmt.Errorf("make %s a shared mount: %w", netnsDir, err)
	}
	return nil
}

// removeNamespace unbinds /run/netns/full. The kernel frees the namespace, with every interface in it, once no process
// and no socket is inside. One that is already gone is no error.
func removeNamespace(full string) error {
	path := filepath.Join(netnsDir, full)
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove namespace: %w", err)
	}
	return nil
}

// endProcesses asks every process inside the namespace to end, and kills after a second what has not.
func endProcesses(full string) error {
	var inside unix.Stat_t
	if err := unix.Stat(filepath.Join(netnsDir, full), &inside); err != nil {
		return nil // never bound, or removed by another: no one can be found by it
	}
	deadline := time.Now().Add(time.Second)
	for try := 0; ; try++ {
		pids := processesIn(map[[2]uint64]bool{{inside.Dev, inside.Ino}: true})
		if len(pids) == 0 {
			return nil
		}
		for _, pid := range pids {
			switch {
			case try == 0:
				_ = syscall.Kill(pid, syscall.SIGTERM) // it may have ended meanwhile
			case time.Now().After(deadline):
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		if time.Now().After(deadline.Add(20 * time.Second)) {
			return fmt.Errorf("namespace %s: processes %v survive SIGKILL", full, pids)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// processesIn lists the processes, this one and zombies excepted, whose main thread is in one of the network namespaces, given by
// device and inode.
func processesIn(namespaces map[[2]uint64]bool) []int {
	if len(namespaces) == 0 {
		return nil
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		var stat unix.Stat_t // a zombie has no namespaces any more: the call fails
		if unix.Stat(filepath.Join("/proc", entry.Name(), "ns/net"), &stat) == nil && namespaces[[2]uint64{stat.Dev, stat.Ino}] {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Abandon kills every process in the namespaces of this process's own labs, and removes the namespaces: it is for a process that
// ends at once. Kept labs stay.
func Abandon() error {
	entries, err := namespaces()
	if err != nil {
		return err
	}
	own := map[[2]uint64]bool{}
	var removals sync.WaitGroup // in parallel: each unmount waits until no processor looks at the mount any more
	errs := make([]error, len(entries))
	for i, entry := range entries {
		if match := owned.FindStringSubmatch(entry); match == nil || match[1] != strconv.Itoa(os.Getpid()) {
			continue
		}
		var inside unix.Stat_t
		if unix.Stat(filepath.Join(netnsDir, entry), &inside) == nil {
			own[[2]uint64{inside.Dev, inside.Ino}] = true
		}
		removals.Go(func() { errs[i] = removeNamespace(entry) })
	}
	for _, pid := range processesIn(own) {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended meanwhile
	}
	removals.Wait()
	return errors.Join(errs...)
}
