package doctor

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/finding"
	"github.com/weir-lb/weir/internal/sockets"
)

// queue is the kernel's row about one queue.
type queue struct {
	number                uint16
	port                  uint32 // netlink port of the socket that has it
	dropped, userDropped  uint64
	numbered              uint64 // packets so far
	waiting, mode, copied uint64
}

// parseQueues reads /proc/net/netfilter/nfnetlink_queue.
func parseQueues(text string) ([]queue, error) {
	var all []queue
	for line := range strings.Lines(text) {
		var q queue
		if _, err := fmt.Sscan(line, &q.number, &q.port, &q.waiting, &q.mode, &q.copied, &q.dropped, &q.userDropped, &q.numbered); err != nil {
			return nil, fmt.Errorf("nfnetlink_queue: line %q: %w", strings.TrimSpace(line), err)
		}
		all = append(all, q)
	}
	return all, nil
}

// queues reads the queues of the namespace, only those of our range if there is one.
func (e *examiner) queues() ([]queue, error) {
	text, err := os.ReadFile(filepath.Join(e.proc, "thread-self/net/netfilter/nfnetlink_queue"))
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	all, err := parseQueues(string(text))
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(q queue) bool {
		return e.Count > 0 && (q.number < e.First || int(q.number) >= int(e.First)+e.Count)
	}), nil
}

// runCommand returns the command that serves the queues of the configuration, or the bound ones without a configuration.
func (e *examiner) runCommand(bound []queue, more string) string {
	first, last := int(e.First), int(e.First)+e.Count-1
	if e.Count == 0 {
		first, last = int(bound[0].number), int(bound[len(bound)-1].number)
	}
	file := "FILE"
	words := strings.Fields(e.Arguments)
	if i := slices.Index(words, "-c"); i >= 0 && i+1 < len(words) {
		file = words[i+1]
	}
	if i := slices.Index(words, "--interface"); i >= 0 && i+1 < len(words) && slices.Contains(words, "--unmarked=true") {
		more = " --interface " + words[i+1] + more // the rules expect its fast path
	}
	numbers := fmt.Sprint(first)
	if last > first {
		numbers = fmt.Sprintf("%d:%d", first, last)
	}
	return fmt.Sprintf("weir lb run -c %s --datapath nfqueue --queue %s%s", file, numbers, more)
}

// listener looks for queues without a listener, and for queues of several programs.
func (e *examiner) listener() error {
	if e.Count == 0 {
		return nil
	}
	bound, err := e.queues()
	if err != nil {
		return err
	}
	var silent []string
	for n := range e.Count {
		number := e.First + uint16(n)
		if !slices.ContainsFunc(bound, func(q queue) bool { return q.number == number }) {
			silent = append(silent, fmt.Sprint(number))
		}
	}
	if len(silent) > 0 {
		e.Bad(finding.Fail, e.runCommand(bound, ""), "no program listens to queue %s: its packets are dropped, or pass unmarked", strings.Join(silent, ", "))
	}
	owners, err := e.owners(bound)
	if err != nil {
		return err
	}
	if len(owners) > 1 {
		var each []string
		for _, o := range owners {
			each = append(each, o.String())
		}
		last := owners[len(owners)-1]
		e.Bad(finding.Warn, fmt.Sprintf("kill %d", last.pid), "several programs serve these queues, each with its own memory of flows and fragments: %s", strings.Join(each, "; "))
	}
	if len(silent) == 0 && len(owners) == 1 {
		e.OK("%s", owners[0])
	}
	return nil
}

// owner is a process and the queues it has.
type owner struct {
	pid    int // 0: not found
	name   string
	queues []string
}

func (o owner) String() string {
	if o.pid == 0 {
		return "queue " + strings.Join(o.queues, ", ") + ": a process that is not seen from here"
	}
	return fmt.Sprintf("queue %s: %s (process %d)", strings.Join(o.queues, ", "), o.name, o.pid)
}

// owners finds the processes that have the queues, weir first.
func (e *examiner) owners(bound []queue) ([]owner, error) {
	if len(bound) == 0 {
		return nil, nil
	}
	text, err := os.ReadFile(filepath.Join(e.proc, "thread-self/net/netlink"))
	if err != nil {
		return nil, err
	}
	inodes := portSockets(string(text))
	holders := sockets.Holders(e.proc, slices.Collect(maps.Values(inodes))...)
	byPID := map[int]*owner{}
	for _, q := range bound {
		pid := holders[inodes[q.port]]
		if byPID[pid] == nil {
			byPID[pid] = &owner{pid: pid, name: sockets.Name(e.proc, pid)}
		}
		byPID[pid].queues = append(byPID[pid].queues, fmt.Sprint(q.number))
	}
	var all []owner
	for _, pid := range slices.Sorted(maps.Keys(byPID)) {
		all = append(all, *byPID[pid])
	}
	slices.SortStableFunc(all, func(a, b owner) int {
		switch {
		case a.name == "weir" && b.name != "weir":
			return -1
		case b.name == "weir" && a.name != "weir":
			return 1
		}
		return len(b.queues) - len(a.queues)
	})
	return all, nil
}

// portSockets returns the inodes of netfilter's netlink sockets by port, from /proc/net/netlink.
func portSockets(text string) map[uint32]string {
	all := map[uint32]string{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 10 || words[1] != strconv.Itoa(unix.NETLINK_NETFILTER) {
			continue
		}
		if port, err := strconv.ParseUint(words[2], 10, 32); err == nil && port != 0 {
			all[uint32(port)] = words[9]
		}
	}
	return all
}

// drops reports what the queues have dropped since they were opened.
func (e *examiner) drops() error {
	bound, err := e.queues()
	if err != nil || len(bound) == 0 {
		return err
	}
	before := len(e.Findings)
	for _, q := range bound {
		if q.dropped > 0 {
			e.Bad(finding.Warn, e.runCommand(bound, " --queue-length 16384"), "queue %d was full: it dropped %d packets and took %d; restart weir with a longer queue, or with more queues", q.number, q.dropped, q.numbered)
		}
		if q.userDropped > 0 {
			e.Bad(finding.Warn, e.runCommand(bound, " --receive-buffer 33554432"), "the socket of queue %d was full: %d packets were dropped and %d taken; restart weir with a larger buffer", q.number, q.userDropped, q.numbered)
		}
	}
	if e.Silent(before) {
		e.OK("nothing was dropped by %d queues", len(bound))
	}
	return nil
}

// wantedBuffer is approximately the receive buffer that weir requests with its default queue length and copy range.
const wantedBuffer = 4 << 20

// buffer checks whether weir can get the receive buffer that it requests.
func (e *examiner) buffer() error {
	if e.Count == 0 {
		return nil
	}
	if e.force(wantedBuffer) == nil {
		e.OK("a receive buffer of %d MiB can be had", wantedBuffer>>20)
		return nil
	}
	limit, ok, err := e.sysctl("core/rmem_max")
	if err != nil || !ok {
		return err
	}
	if limit < wantedBuffer {
		e.Bad(finding.Warn, set("core/rmem_max", wantedBuffer), "receive buffers are limited to %d KiB: a burst is dropped that a queue of 4096 packets would hold", limit>>10)
		return nil
	}
	e.OK("a receive buffer of %d MiB can be had", wantedBuffer>>20)
	return nil
}

func forceBuffer(bytes int) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, bytes)
}
