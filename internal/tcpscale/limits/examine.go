package limits

import (
	"fmt"

	"github.com/weir-lb/weir/internal/finding"
)

// Costs, measured (docs/tcp-bench.md): bytes of kernel memory for a socket, of user memory for a connection at each end, and of
// a worker process; descriptors that a worker keeps for itself.
const (
	SocketBytes     = 3800
	UserBytes       = 100
	WorkerBytes     = 6 << 20
	ReserveFiles    = 500
	leastBacklog    = 1024
	threadsOfWorker = 8
)

// Fits says whether no finding has the level finding.Fail.
func Fits(findings []finding.Finding) bool { return finding.Worst(findings) != finding.Fail }

// Examine judges each limit. It is pure: the same arguments give the same findings.
func Examine(s State, w Want) []finding.Finding {
	e := examination{state: s, want: w, n: uint64(max(w.Connections, 0)), ends: 1}
	if w.BothEnds {
		e.ends = 2
	}
	e.files()
	e.ports()
	e.queues()
	e.conntrack()
	e.memory()
	e.cgroup()
	return e.findings
}

type examination struct {
	state    State
	want     Want
	n, ends  uint64
	workers  uint64 // of each end
	findings []finding.Finding
}

// judge adds a finding: worse is its level if have is less than need.
func (e *examination) judge(check string, have, need uint64, worse finding.Level, what, remedy string) {
	f := finding.Finding{Check: check, Level: finding.OK, Have: have, Need: need, What: what}
	if have < need {
		f.Level, f.Remedy = worse, remedy
	}
	if have > 0 {
		e.findings = append(e.findings, f)
	}
}

func (e *examination) files() {
	s := &e.state
	each := uint64(1)
	if s.FilesHard > ReserveFiles {
		each = s.FilesHard - ReserveFiles
	}
	e.workers = max(1, (e.n+each-1)/each)
	if given := uint64(max(e.want.Workers, 0)); given > 0 {
		e.workers = given
		need := (e.n+given-1)/given + ReserveFiles
		e.judge("open files of a process", s.FilesHard, need, finding.Fail,
			fmt.Sprintf("hard limit %d; %d workers of each end need %d each", s.FilesHard, given, need),
			fmt.Sprintf("ulimit -Hn %d (or LimitNOFILE=%d in the unit), or --workers %d", need, need, max(1, (e.n+each-1)/each)))
	} else {
		e.judge("open files of a process", s.FilesHard, ReserveFiles+1, finding.Fail,
			fmt.Sprintf("soft limit %d, hard limit %d: %d workers of each end", s.FilesSoft, s.FilesHard, e.workers),
			fmt.Sprintf("ulimit -Hn %d", ReserveFiles+100))
	}
	need := s.FilesUsed + e.n*e.ends + e.workers*e.ends*100
	e.judge("open files of the system", s.FilesSystem, need, finding.Fail,
		fmt.Sprintf("fs.file-max %d, %d in use; %d are needed", s.FilesSystem, s.FilesUsed, need),
		fmt.Sprintf("sysctl -w fs.file-max=%d", need+need/10))
}

func (e *examination) ports() {
	s := &e.state
	if s.PortHigh < s.PortLow || s.PortHigh == 0 {
		return
	}
	ports := s.PortHigh - s.PortLow + 1 - s.ReservedPorts
	targets := uint64(max(e.want.Targets, 1))
	if e.want.Sources == 0 { // loopback: sources are made as needed
		e.judge("source ports", ports, 1000, finding.Warn,
			fmt.Sprintf("%d–%d: %d towards one target from one address; on loopback more addresses are taken by themselves", s.PortLow, s.PortHigh, ports),
			"sysctl -w net.ipv4.ip_local_port_range='1024 65535'")
		return
	}
	have := ports * targets * uint64(e.want.Sources)
	remedy := "sysctl -w net.ipv4.ip_local_port_range='1024 65535'"
	if wide := uint64(64512) * targets * uint64(e.want.Sources); wide < e.n {
		remedy += fmt.Sprintf(", and %d source addresses (--source-addresses) or targets instead of %d", (e.n+64511)/64512, targets*uint64(e.want.Sources))
	}
	e.judge("source ports", have, e.n, finding.Fail,
		fmt.Sprintf("%d ports × %d sources × %d targets = %d", ports, e.want.Sources, targets, have), remedy)
}

func (e *examination) queues() {
	s := &e.state
	e.judge("accept queue", s.SomaxConn, leastBacklog, finding.Warn, fmt.Sprintf("net.core.somaxconn %d", s.SomaxConn), "sysctl -w net.core.somaxconn=4096")
	e.judge("SYN queue", s.SynBacklog, leastBacklog, finding.Warn, fmt.Sprintf("net.ipv4.tcp_max_syn_backlog %d", s.SynBacklog), "sysctl -w net.ipv4.tcp_max_syn_backlog=4096")
	e.judge("TIME_WAIT", s.TWBuckets, min(e.n, 32768), finding.Warn,
		fmt.Sprintf("net.ipv4.tcp_max_tw_buckets %d: of no use to connections that are held, a bound to --churn with FIN", s.TWBuckets),
		fmt.Sprintf("sysctl -w net.ipv4.tcp_max_tw_buckets=%d", min(e.n, 32768)))
}

func (e *examination) conntrack() {
	s := &e.state
	level, reason := finding.Warn, "it matters if a rule here tracks connections"
	if e.want.Conntracked {
		level, reason = finding.Fail, "the path is tracked here"
	}
	need := s.ConntrackCount + e.n + e.n/5
	e.judge("conntrack table", s.ConntrackMax, need, level,
		fmt.Sprintf("nf_conntrack_max %d, %d in use; %s", s.ConntrackMax, s.ConntrackCount, reason),
		fmt.Sprintf("sysctl -w net.netfilter.nf_conntrack_max=%d", need))
}

func (e *examination) memory() {
	s := &e.state
	need := e.n*e.ends*(SocketBytes+UserBytes) + e.workers*e.ends*WorkerBytes
	e.judge("memory", s.MemoryAvailable, need, finding.Fail,
		fmt.Sprintf("%d MB available; %d MB are needed", s.MemoryAvailable>>20, need>>20),
		fmt.Sprintf("fewer connections: about %d fit", s.MemoryAvailable/(e.ends*(SocketBytes+UserBytes))*9/10))
	// Idle sockets have no buffer; a page for one in a hundred that is just being served.
	pages := e.n * e.ends / 100
	e.judge("memory of TCP", s.TCPMemPages, pages, finding.Warn,
		fmt.Sprintf("net.ipv4.tcp_mem allows %d pages of buffers", s.TCPMemPages),
		fmt.Sprintf("sysctl -w net.ipv4.tcp_mem='%d %d %d'", pages, pages*4/3, pages*2))
}

func (e *examination) cgroup() {
	s := &e.state
	if s.CgroupMemoryMax > 0 {
		have, need := s.CgroupMemoryMax-min(s.CgroupMemoryUsed, s.CgroupMemoryMax), e.n*e.ends*(SocketBytes+UserBytes)+e.workers*e.ends*WorkerBytes
		e.judge("memory of the cgroup", max(have, 1), need, finding.Fail,
			fmt.Sprintf("memory.max leaves %d MB; %d MB are needed", have>>20, need>>20),
			fmt.Sprintf("raise the cgroup's memory.max (MemoryMax=, resources.limits.memory) by %d MB", (need-min(have, need))>>20))
	}
	if s.CgroupPIDsMax > 0 {
		have, need := s.CgroupPIDsMax-min(s.CgroupPIDsUsed, s.CgroupPIDsMax), e.workers*e.ends*threadsOfWorker
		e.judge("processes of the cgroup", max(have, 1), need, finding.Fail,
			fmt.Sprintf("pids.max leaves %d; %d are needed", have, need),
			fmt.Sprintf("raise the cgroup's pids.max (TasksMax=) to %d", s.CgroupPIDsUsed+need))
	}
}
