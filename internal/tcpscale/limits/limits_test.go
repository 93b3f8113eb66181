package limits

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/finding"
)

func roomy() State {
	return State{
		FilesSoft: 1024, FilesHard: 20000, FilesSystem: 2400000, PortLow: 32768, PortHigh: 60999, SomaxConn: 4096, SynBacklog: 2048,
		TWBuckets: 131072, ConntrackMax: 262144, TCPMemPages: 500000, MemoryAvailable: 20 << 30,
	}
}

func TestExamine(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*State, *Want)
		check  string // the one that fails; empty: none
		remedy string
	}{
		{"fits", func(*State, *Want) {}, "", ""},
		{"one worker", func(_ *State, w *Want) { w.Workers = 1 }, "open files of a process", "--workers 6"},
		{"system's files", func(s *State, _ *Want) { s.FilesSystem = 150000 }, "open files of the system", "sysctl -w fs.file-max="},
		{"one source", func(_ *State, w *Want) { w.Sources = 1 }, "source ports", "2 source addresses"},
		{"conntrack", func(s *State, w *Want) { w.Conntracked, s.ConntrackMax = true, 110000 }, "conntrack table", "sysctl -w net.netfilter.nf_conntrack_max=120000"},
		{"memory", func(s *State, _ *Want) { s.MemoryAvailable = 500 << 20 }, "memory", "fewer connections"},
		{"cgroup", func(s *State, _ *Want) { s.CgroupMemoryMax, s.CgroupMemoryUsed = 600<<20, 200<<20 }, "memory of the cgroup", "memory.max"},
		{"pids", func(s *State, _ *Want) { s.CgroupPIDsMax, s.CgroupPIDsUsed = 100, 90 }, "processes of the cgroup", "pids.max"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, w := roomy(), Want{Connections: 100000, BothEnds: true}
			c.change(&s, &w)
			findings := Examine(s, w)
			if Fits(findings) != (c.check == "") {
				t.Errorf("%+v", findings)
			}
			for _, f := range findings {
				if (f.Level == finding.Fail) != (f.Check == c.check) || f.Level == finding.Fail && !strings.Contains(f.Remedy, c.remedy) {
					t.Errorf("%+v", f)
				}
			}
		})
	}
}

func TestReadAt(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"proc/sys/net/ipv4/ip_local_port_range":     "32768\t60999\n",
		"proc/sys/net/ipv4/ip_local_reserved_ports": "40000-40009,50000,1000\n",
		"proc/sys/fs/file-nr":                       "5047\t0\t2465620\n",
		"proc/sys/net/ipv4/tcp_mem":                 "1\t2\t3\n",
		"proc/meminfo":                              "MemTotal: 10 kB\nMemAvailable:  7 kB\n",
		"proc/self/cgroup":                          "0::/a/b\n",
		"sys/fs/cgroup/a/memory.max":                "1000\n",
		"sys/fs/cgroup/a/memory.current":            "400\n",
		"sys/fs/cgroup/a/b/memory.max":              "max\n",
		"sys/fs/cgroup/a/b/pids.max":                "50\n",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got := ReadAt(root)
	want := State{FilesUsed: 5047, PortLow: 32768, PortHigh: 60999, ReservedPorts: 11, TCPMemPages: 3, MemoryAvailable: 7 << 10, CgroupMemoryMax: 1000, CgroupMemoryUsed: 400, CgroupPIDsMax: 50}
	if got != want {
		t.Errorf("%+v\nwant\n%+v", got, want)
	}
}

func TestReadOfThisMachine(t *testing.T) {
	s := Read()
	if s.FilesHard == 0 || s.PortHigh == 0 || s.MemoryAvailable == 0 || s.SomaxConn == 0 {
		t.Errorf("%+v", s)
	}
}
