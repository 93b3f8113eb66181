package limits

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Want is what shall fit.
type Want struct {
	Connections int
	BothEnds    bool // server and client on this machine
	Workers     int  // processes of each end; 0: as many as needed
	Targets     int  // addresses and ports that clients connect to; 0: 1
	Sources     int  // source addresses; 0: as many as needed (loopback)
	Conntracked bool // connections pass conntrack here
}

// State is what was read of this machine. A value of 0 is one that could not be read, and is not judged.
type State struct {
	FilesSoft, FilesHard, FilesSystem, FilesUsed uint64
	FilesPerProcess                              uint64 // fs.nr_open
	PortLow, PortHigh                            uint64
	ReservedPorts                                uint64
	SomaxConn, SynBacklog, TWBuckets, Orphans    uint64
	ConntrackMax, ConntrackCount                 uint64
	TCPMemPages                                  uint64 // the hard one of net.ipv4.tcp_mem
	MemoryAvailable                              uint64 // bytes
	CgroupMemoryMax, CgroupMemoryUsed            uint64 // bytes; max 0: none
	CgroupPIDsMax, CgroupPIDsUsed                uint64
}

// Read reads the machine's state. root is / but in tests.
func Read() State {
	s := ReadAt("/")
	var files unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &files) == nil {
		s.FilesSoft, s.FilesHard = files.Cur, files.Max
	}
	return s
}

// ReadAt reads all but the limits of this process from the files below root.
func ReadAt(root string) State {
	sys := func(name string) []uint64 { return numbers(filepath.Join(root, "proc/sys", name)) }
	var s State
	s.FilesSystem, s.FilesPerProcess = at(sys("fs/file-max"), 0), at(sys("fs/nr_open"), 0)
	s.FilesUsed = at(sys("fs/file-nr"), 0)
	ports := sys("net/ipv4/ip_local_port_range")
	s.PortLow, s.PortHigh = at(ports, 0), at(ports, 1)
	s.ReservedPorts = reserved(filepath.Join(root, "proc/sys/net/ipv4/ip_local_reserved_ports"), s.PortLow, s.PortHigh)
	s.SomaxConn, s.SynBacklog = at(sys("net/core/somaxconn"), 0), at(sys("net/ipv4/tcp_max_syn_backlog"), 0)
	s.TWBuckets, s.Orphans = at(sys("net/ipv4/tcp_max_tw_buckets"), 0), at(sys("net/ipv4/tcp_max_orphans"), 0)
	s.ConntrackMax, s.ConntrackCount = at(sys("net/netfilter/nf_conntrack_max"), 0), at(sys("net/netfilter/nf_conntrack_count"), 0)
	s.TCPMemPages = at(sys("net/ipv4/tcp_mem"), 2)
	s.MemoryAvailable = memInfo(filepath.Join(root, "proc/meminfo"), "MemAvailable:")
	s.cgroup(root)
	return s
}

// cgroup takes the tightest limit from our own group up to the root's.
func (s *State) cgroup(root string) {
	line, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return
	}
	path := ""
	for _, l := range strings.Split(strings.TrimSpace(string(line)), "\n") {
		if rest, ok := strings.CutPrefix(l, "0::"); ok {
			path = rest
		}
	}
	if path == "" {
		return // version 1: not read
	}
	base := filepath.Join(root, "sys/fs/cgroup")
	for dir := filepath.Join(base, path); strings.HasPrefix(dir, base); dir = filepath.Dir(dir) {
		tighter := func(limit, use string, most, used *uint64) {
			m, u := at(numbers(filepath.Join(dir, limit)), 0), at(numbers(filepath.Join(dir, use)), 0)
			if m > 0 && (*most == 0 || m-min(u, m) < *most-min(*used, *most)) {
				*most, *used = m, u
			}
		}
		tighter("memory.max", "memory.current", &s.CgroupMemoryMax, &s.CgroupMemoryUsed)
		tighter("pids.max", "pids.current", &s.CgroupPIDsMax, &s.CgroupPIDsUsed)
	}
}

// numbers reads those of a small file; "max" and what is no number is 0.
func numbers(path string) []uint64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	var all []uint64
	for _, word := range strings.Fields(string(text)) {
		n, err := strconv.ParseUint(word, 10, 64)
		if err != nil {
			n = 0
		}
		all = append(all, n)
	}
	return all
}

func at(all []uint64, i int) uint64 {
	if i >= len(all) {
		return 0
	}
	return all[i]
}

// reserved counts the ports of the kernel's range that it must not give away.
func reserved(path string, low, high uint64) (n uint64) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for _, part := range strings.Split(strings.TrimSpace(string(text)), ",") {
		var a, b uint64
		switch got, _ := fmt.Sscanf(part, "%d-%d", &a, &b); got { // the count says it
		case 0:
			continue
		case 1:
			b = a
		}
		if a, b = max(a, low), min(b, high); a <= b {
			n += b - a + 1
		}
	}
	return n
}

func memInfo(path, key string) uint64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for _, line := range strings.Split(string(text), "\n") {
		if fields := strings.Fields(line); len(fields) >= 2 && fields[0] == key {
			n, err := strconv.ParseUint(fields[1], 10, 64)
			if err == nil {
				return n << 10
			}
		}
	}
	return 0
}
