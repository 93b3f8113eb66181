package tcpscale

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Failure is why a connection was not made, or was lost: a key of [Report].Failures.
type Failure uint8

// The kinds of failure.
const (
	Refused      Failure = iota // RST to the SYN: no listener, or a balancer without backends
	Timeout                     // the SYN was never answered
	Unanswered                  // TCP came up, the server's program never spoke
	Reset                       // RST on an established connection
	Closed                      // FIN that was not requested
	Silent                      // nothing came back for misses × period
	OneWay                      // the heartbeats of the server arrive, ours do not
	OutOfPorts                  // no free source port towards that target
	OutOfFiles                  // open-file limit of the process or the system
	OutOfMemory                 // the kernel had no memory for a socket
	Unreachable                 // no route, or ICMP says so
	NoPermission                // a local firewall or policy says no
	Stalled                     // the peer has stopped reading
	Protocol                    // the peer does not follow this protocol
	Evicted                     // the server gave it up, and said so: our heartbeats did not arrive there
	Hung                        // the peer's kernel acknowledges what we send, its program does not answer
	Starved                     // the server gave it up as this tester was not scheduled
	OtherError                  // any other error of the kernel
	failureKinds                // how many there are
)

// String returns the JSON key.
func (f Failure) String() string {
	if f >= failureKinds {
		return "other"
	}
	return [failureKinds]string{
		"refused", "timeout", "unanswered", "reset", "closed", "silent", "one_way", "out_of_ports", "out_of_files", "out_of_memory",
		"unreachable", "no_permission", "stalled", "protocol", "evicted", "hung", "starved", "other",
	}[f]
}

// Remedy says what such a failure means and what to do, in one sentence or two.
func (f Failure) Remedy() string {
	if f >= failureKinds {
		return ""
	}
	return [failureKinds]string{
		"no program listens there, or the balancer has no backend: check the address and 'weir tcp server'",
		"the SYN was dropped without a word: a NAT's port quota, a full conntrack table, a firewall or a full SYN backlog; compare with 'weir snat plan', see nf_conntrack_count and 'nstat TcpExtListenDrops'",
		"TCP came up and the program behind it did not accept: the server's open-file limit or a full accept queue; start it with more --workers",
		"the connection was reset, and no one said why: the server's process or machine ended; a server that still holds it, and evicts it later, points to a balancer or NAT on the way instead",
		"the peer closed without a request: a server stopped, or a balancer's idle time-out",
		"what we send is not even acknowledged: the path drops the flow, or the machine at its end is gone; if it begins after a fixed idle time, use a shorter --heartbeat than that",
		"our bytes do not arrive while the server's do: asymmetric routing, or a box on the way that drops one direction",
		"the source ports towards that target are used up: sysctl -w net.ipv4.ip_local_port_range='1024 65535', or more --sources or targets in --to",
		"the open-file limit is reached: more --workers, or a higher hard limit (ulimit -Hn, LimitNOFILE=); for the whole system sysctl -w fs.file-max",
		"the kernel has no memory for sockets: sysctl net.ipv4.tcp_mem, or the cgroup's memory.max",
		"no route, or a router says unreachable: check routes and addresses",
		"a local firewall or policy forbids it: check nft list ruleset",
		"the peer does not read what it gets: it hangs, or its path is full",
		"what answers there is not 'weir tcp server'; against other programs use --plain",
		"our heartbeats do not arrive at the server, which reported that: the path drops what we send, or delays it for longer than misses x period",
		"the peer's kernel acknowledges our heartbeats and its program does not answer: the server hangs or is stopped (or a proxy on the way acknowledges for it)",
		"this machine did not schedule the tester in time for its heartbeats, so the server gave the connection up: not the path's fault; fewer connections, or fewer other programs here",
		"see the error in failed_samples",
	}[f]
}

// classify names the kind of an error of the kernel. connecting: before TCP was up.
func classify(err error, connecting bool) Failure {
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return OtherError
	}
	switch errno {
	case unix.ECONNREFUSED:
		return Refused
	case unix.ETIMEDOUT:
		if connecting {
			return Timeout
		}
		return Silent
	case unix.ECONNRESET, unix.EPIPE, unix.ECONNABORTED:
		return Reset
	case unix.EADDRNOTAVAIL, unix.EADDRINUSE:
		return OutOfPorts
	case unix.EMFILE, unix.ENFILE:
		return OutOfFiles
	case unix.ENOMEM, unix.ENOBUFS:
		return OutOfMemory
	case unix.ENETUNREACH, unix.EHOSTUNREACH, unix.ENETDOWN, unix.EHOSTDOWN, unix.ENONET:
		return Unreachable
	case unix.EACCES, unix.EPERM:
		return NoPermission
	}
	return OtherError
}
