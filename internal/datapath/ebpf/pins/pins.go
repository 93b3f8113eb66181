package pins

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
)

// DefaultPath is where `weir lb run` keeps a data path by default.
const DefaultPath = "/sys/fs/bpf/weir/lb"

// DefaultFrontPath is where it keeps the program in front of netfilter queues.
const DefaultFrontPath = "/sys/fs/bpf/weir/queue"

// bpffsRoot is where distributions mount the bpf file system.
const bpffsRoot = "/sys/fs/bpf"

// Dir is a directory of a bpf file system that keeps maps and links alive
// while no process does:
//
//	PATH/maps/NAME            every table, and what weir remembers (Store)
//	PATH/links/HOOK-INTERFACE every attached program
//
// The directory itself is locked by the process that serves it.
type Dir struct {
	Path string
	lock *os.File
}

// ErrInUse is wrapped when another process serves a pin path.
var ErrInUse = errors.New("in use")

// Open makes the directory, mounts the file system where it is missing at
// its usual place, and locks. The warning, if any, is for the operator.
func Open(path string) (p *Dir, warning string, err error) {
	if path, err = filepath.Abs(path); err != nil {
		return nil, "", fmt.Errorf("pin path: %w", err)
	}
	if warning, err = ensureBPFFS(path); err != nil {
		return nil, "", err
	}
	for _, dir := range []string{path, filepath.Join(path, "maps"), filepath.Join(path, "links")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, "", fmt.Errorf("pin path: %w", err)
		}
	}
	p = &Dir{Path: path}
	if err := p.lockDir(); err != nil {
		return nil, "", err
	}
	return p, warning, nil
}

// FindDir opens and locks a directory that exists; nil when there is none.
func FindDir(path string) (*Dir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("pin path: %w", err)
	}
	p := &Dir{Path: path}
	if _, err := os.Stat(filepath.Join(path, "maps")); errors.Is(err, os.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("pin path: %w", err)
	}
	if err := p.lockDir(); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *Dir) lockDir() error {
	lock, err := os.Open(p.Path)
	if err != nil {
		return fmt.Errorf("pin path: %w", err)
	}
	err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	for end := time.Now().Add(dyingTime); errors.Is(err, unix.EWOULDBLOCK) && dying(LockHolder(lock)) && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil {
		defer lock.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return fmt.Errorf("lock pin path %s: %w", p.Path, err)
		}
		return fmt.Errorf("pin path %s is %w: %s serves it; stop that one, or choose another --pin-path", p.Path, ErrInUse, HolderName(lock))
	}
	p.lock = lock
	return nil
}

// dyingTime is how long a killed process may take to let go of its files.
const dyingTime = 10 * time.Second

// dying reports whether a process is on its way out: it has no memory left.
func dying(pid int) bool {
	if pid == 0 {
		return false
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return errors.Is(err, os.ErrNotExist) || err == nil && len(line) == 0
}

// Release gives the lock back; what is pinned stays.
func (p *Dir) Release() {
	if p != nil && p.lock != nil {
		_ = unix.Flock(int(p.lock.Fd()), unix.LOCK_UN) // a child between fork and exec has the descriptor, too
		p.lock.Close()
		p.lock = nil
	}
}

func (p *Dir) MapsDir() string           { return filepath.Join(p.Path, "maps") }
func (p *Dir) MapAt(name string) string  { return filepath.Join(p.Path, "maps", name) }
func (p *Dir) linksDir() string          { return filepath.Join(p.Path, "links") }
func (p *Dir) LinkAt(name string) string { return filepath.Join(p.Path, "links", name) }

// names lists one of the two folders.
func names(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

// Links lists the pinned links.
func (p *Dir) Links() []string { return names(p.linksDir()) }

// dropMaps unpins every map. Programs that still run keep theirs.
func (p *Dir) dropMaps() error {
	var errs []error
	for _, name := range names(p.MapsDir()) {
		errs = append(errs, os.Remove(p.MapAt(name)))
	}
	return errors.Join(errs...)
}

// Remove takes the directory away, and its parent where that is ours and empty.
func (p *Dir) Remove() error {
	err := errors.Join(p.dropMaps(), os.Remove(p.MapsDir()), os.Remove(p.linksDir()), os.Remove(p.Path))
	if parent := filepath.Dir(p.Path); filepath.Base(parent) == "weir" {
		os.Remove(parent) // fails, rightly, when another instance is there
	}
	return err
}

// LockHolder finds the process that has a directory locked; 0: not to be seen from here.
func LockHolder(dir *os.File) int {
	var st unix.Stat_t
	if unix.Fstat(int(dir.Fd()), &st) != nil {
		return 0
	}
	locks, err := os.Open("/proc/locks")
	if err != nil {
		return 0
	}
	defer locks.Close()
	at := fmt.Sprintf("%02x:%02x:%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)
	lines := bufio.NewScanner(locks)
	for lines.Scan() {
		f := strings.Fields(lines.Text()) // 1: FLOCK ADVISORY WRITE pid maj:min:inode 0 EOF
		if len(f) >= 6 && f[1] == "FLOCK" && f[5] == at {
			pid, _ := strconv.Atoi(f[4])
			return max(pid, 0)
		}
	}
	return 0
}

// HolderName is what people call the process that has a directory locked.
func HolderName(dir *os.File) string {
	pid := LockHolder(dir)
	if pid == 0 {
		return "another process"
	}
	comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return fmt.Sprintf("process %d", pid)
	}
	return fmt.Sprintf("%s (process %d)", strings.TrimSpace(string(comm)), pid)
}

// ensureBPFFS checks that path lies on a bpf file system, and mounts the usual
// one where that alone is missing.
func ensureBPFFS(path string) (warning string, err error) {
	if onBPFFS(path) {
		return "", nil
	}
	if path != bpffsRoot && !strings.HasPrefix(path, bpffsRoot+"/") {
		return "", fmt.Errorf("pin path %s is on no bpf file system; mount one there (mkdir -p DIR && mount -t bpf bpf DIR) or use a path below %s", path, bpffsRoot)
	}
	if err := unix.Mount("bpf", bpffsRoot, "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700"); err != nil {
		return "", fmt.Errorf("no bpf file system at %s, and mounting it: %w; mount it (mount -t bpf bpf %[1]s) or name another --pin-path", bpffsRoot, err)
	}
	if privateMounts() {
		warning = "mounted " + bpffsRoot + " in a mount namespace of this process (ip netns exec makes one): pins there end with it; " +
			"to keep flows over a restart, mount a bpf file system outside of " + bpffsRoot + " and name it with --pin-path"
	}
	return warning, nil
}

// onBPFFS looks at the nearest directory that exists.
func onBPFFS(path string) bool {
	for {
		var st unix.Statfs_t
		err := unix.Statfs(path, &st)
		if err == nil {
			return int64(st.Type) == unix.BPF_FS_MAGIC
		}
		if parent := filepath.Dir(path); parent != path {
			path = parent
			continue
		}
		return false
	}
}

// privateMounts reports whether this process sees other mounts than the first
// one of the machine or container.
func privateMounts() bool {
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return false
	}
	first, err := os.Readlink("/proc/1/ns/mnt")
	return err == nil && own != first
}

// Detach ends one pinned link.
func (p *Dir) Detach(name string) error { return attach.Detach(p.LinkAt(name)) }

// Programs are those of every pinned link.
func (p *Dir) Programs() map[ebpf.ProgramID]bool {
	if p == nil {
		return nil
	}
	var paths []string
	for _, name := range names(p.linksDir()) {
		paths = append(paths, p.LinkAt(name))
	}
	return attach.Programs(paths)
}
