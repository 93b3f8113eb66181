package scalebench

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/tcpscale"
)

// namespace is a network namespace of a benchmark's own, with nothing in it but loopback. It ends with its last process
// and [namespace.close].
type namespace struct{ file *os.File }

// maxBuckets bounds a namespace's own hash table of established connections (tcp_child_ehash_entries).
const maxBuckets = 16 << 20

// newNamespace makes one for n connections of which both ends are here: all source ports that need no privilege, a hash
// table with a bucket for each socket instead of the machine's shared one, and Reno instead of a congestion control with
// timers. It needs CAP_SYS_ADMIN.
func newNamespace(n int) (*namespace, error) {
	type made struct {
		file *os.File
		err  error
	}
	done := make(chan made)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with us
		file, err := makeNamespace(n)
		done <- made{file, err}
	}()
	m := <-done
	if m.err != nil {
		return nil, m.err
	}
	return &namespace{m.file}, nil
}

// makeNamespace leaves the thread in the new namespace.
func makeNamespace(n int) (*os.File, error) {
	buckets := 1 << 16
	for buckets < 2*n && buckets < maxBuckets {
		buckets *= 2
	}
	// The size of a namespace's table is a setting of the one that it is made from: a first one, so that ours stays as it is.
	for _, set := range [][][2]string{
		{{"tcp_child_ehash_entries", fmt.Sprint(buckets)}},
		{{"ip_local_port_range", "1024 65535"}, {"tcp_congestion_control", "reno"}},
	} {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return nil, fmt.Errorf("make a network namespace: %w", err)
		}
		for _, s := range set {
			if err := os.WriteFile("/proc/sys/net/ipv4/"+s[0], []byte(s[1]), 0o644); err != nil {
				return nil, fmt.Errorf("set up a network namespace: %w", err)
			}
		}
	}
	if err := loopbackUp(); err != nil {
		return nil, fmt.Errorf("set up a network namespace: loopback: %w", err)
	}
	file, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("keep a network namespace: %w", err)
	}
	return file, nil
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
}

// do runs f on a thread in the namespace; see [tcpscale.Launcher].
func (s *namespace) do(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with us
		if err := unix.Setns(int(s.file.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter the network namespace: %w", err)
			return
		}
		done <- f()
	}()
	return <-done
}

func (s *namespace) close() { s.file.Close() }

// conditions are those of the kernel where the launcher starts processes.
func conditions(launcher tcpscale.Launcher, where string, files uint64) []Condition {
	all := []Condition{{Name: "network namespace", Value: where}}
	read := func() error {
		buckets := strings.TrimPrefix(sys("ipv4/tcp_ehash_entries"), "-") // negative: shared with others
		tracked := "not loaded"
		if limit := sys("netfilter/nf_conntrack_max"); limit != "unknown" {
			tracked = sys("netfilter/nf_conntrack_count") + " of " + limit + " entries used"
		}
		all = append(all, []Condition{
			{Name: "source ports", Value: sys("ipv4/ip_local_port_range")},
			{Name: "established hash", Value: buckets + " buckets"},
			{Name: "congestion control", Value: sys("ipv4/tcp_congestion_control")},
			{Name: "conntrack", Value: tracked},
			{Name: "TIME_WAIT", Value: "at most " + sys("ipv4/tcp_max_tw_buckets")},
			{Name: "accept queue", Value: "somaxconn " + sys("core/somaxconn")},
		}...)
		return nil
	}
	if launcher.Do == nil {
		_ = read() // never fails
	} else if err := launcher.Do(read); err != nil {
		all = append(all, Condition{Name: "not read", Value: err.Error()})
	}
	return append(all, Condition{Name: "TCP memory", Value: sys("ipv4/tcp_mem") + " pages"}, Condition{Name: "open files", Value: fmt.Sprintf("%d a process", files)}) // the machine's
}

// sys is a setting of this thread's network namespace, in one line.
func sys(name string) string {
	text, err := os.ReadFile(filepath.Join("/proc/sys/net", name))
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(text)), " ")
}
