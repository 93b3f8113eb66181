package doctor

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"unsafe"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/datapath/nfqueue/rules"
	"github.com/weir-lb/weir/internal/finding"
)

// ethtool's commands and flags (linux/ethtool.h).
const (
	ethtoolGetGRO   = 0x2b
	ethtoolGetFlags = 0x25
	flagLRO         = 1 << 15
)

// ethtoolValue reads one number from the driver of an interface.
func ethtoolValue(name string, command uint32) (uint32, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	value := struct{ command, data uint32 }{command: command}
	request := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: unsafe.Pointer(&value)}
	copy(request.name[:unix.IFNAMSIZ-1], name)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
	runtime.KeepAlive(&value)
	if errno != 0 {
		return 0, errno
	}
	return value.data, nil
}

func ethtoolFlags(name string) (uint32, error) { return ethtoolValue(name, ethtoolGetFlags) }

// largeReceive looks for network cards whose receive offload (LRO) merges packets irreversibly. GRO is no problem: it keeps
// fragments apart, and the kernel splits merged segments again when it sends them.
func (e *examiner) largeReceive() error {
	before := len(e.Findings)
	for _, name := range e.names {
		if flags, err := e.flags(name); err == nil && flags&flagLRO != 0 { // no answer: no such feature
			e.Bad(finding.Fail, "ethtool -K "+name+" lro off", "%s merges packets by LRO: such packets cannot be forwarded", name)
		}
	}
	if e.Silent(before) && len(e.names) > 0 {
		e.OK("no LRO on %s; GRO may be on", strings.Join(e.names, ", "))
	}
	return nil
}

// bridge looks for bridges that pass frames through iptables although they only switch them.
func (e *examiner) bridge() error {
	if !slices.ContainsFunc(e.links, func(l netlink.Link) bool { return l.Type() == "bridge" }) {
		return nil
	}
	before := len(e.Findings)
	for _, family := range e.families() {
		key := "bridge/bridge-nf-call-iptables"
		if family == rules.IPv6 {
			key = "bridge/bridge-nf-call-ip6tables"
		}
		if value, ok, err := e.sysctl(key); err != nil {
			return err
		} else if ok && value != 0 {
			e.Bad(finding.Warn, set(key, 0), "bridges send what they only switch through iptables (%s): it is queued, and reassembled where connections are tracked", family)
		}
	}
	if e.Silent(before) {
		e.OK("bridges keep out of iptables")
	}
	return nil
}

// conntrack looks for rules that make the kernel track connections. Tracking reassembles each datagram before the queue sees
// it.
func (e *examiner) conntrack() error {
	before := len(e.Findings)
	for _, rule := range e.listed {
		if why := tracks(rule.Table, rule.Words()); why != "" {
			e.Bad(finding.Warn, rule.Delete(), "%s: fragments are reassembled before the queue, by a rule of table %s: %s", why, rule.Table, rule.Rule)
		}
	}
	// Without the program nft these rules cannot be read, and they rarely exist.
	if _, err := exec.LookPath("nft"); err == nil {
		cmd := exec.CommandContext(e.ctx, "nft", "-a", "list", "ruleset")
		text, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("nft list ruleset: %w", err)
		}
		for _, rule := range nftTracking(string(text)) {
			e.Bad(finding.Warn, rule.delete(), "connections are tracked, so fragments are reassembled before the queue, by an nftables rule: %s", rule.text)
		}
	}
	if e.Silent(before) {
		e.OK("no rule tracks connections: fragments arrive as they were sent")
	}
	return nil
}

// tracks returns why an iptables rule makes the kernel reassemble; empty if it does not.
func tracks(table string, words []string) string {
	if table == "nat" {
		return "addresses are translated"
	}
	matches := []string{"conntrack", "state", "connmark", "connbytes", "connlimit", "connlabel", "helper", "cluster"}
	targets := []string{"CT", "CONNMARK", "CONNSECMARK", "SYNPROXY", "MASQUERADE", "SNAT", "DNAT", "REDIRECT", "NETMAP"}
	for i, word := range words[:max(len(words)-1, 0)] {
		next := words[i+1]
		switch {
		case word == "-m" && slices.Contains(matches, next), word == "-j" && slices.Contains(targets, next) && !slices.Contains(words, "--notrack"):
			return "connections are tracked"
		case word == "-m" && next == "socket", word == "-j" && next == "TPROXY":
			return "sockets are looked up"
		}
	}
	return ""
}

// nftRule is a rule as `nft -a list ruleset` prints it.
type nftRule struct{ table, chain, handle, text string }

func (r nftRule) delete() string {
	return fmt.Sprintf("nft delete rule %s %s handle %s", r.table, r.chain, r.handle)
}

// nftTracking finds rules that track connections in tables that iptables did not make.
func nftTracking(text string) []nftRule {
	var all []nftRule
	var table, chain string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		words := strings.Fields(line)
		switch {
		case len(words) >= 4 && words[0] == "table":
			table, chain = words[1]+" "+words[2], ""
		case len(words) >= 3 && words[0] == "chain" && table != "":
			chain = words[1]
		case chain != "" && !iptablesTable(table):
			rule, handle, ok := strings.Cut(line, " # handle ")
			if ok && nftTracks(strings.Fields(rule)) {
				all = append(all, nftRule{table, chain, handle, rule})
			}
		}
	}
	return all
}

func iptablesTable(name string) bool {
	family, table, _ := strings.Cut(name, " ")
	return (family == "ip" || family == "ip6") && slices.Contains([]string{"filter", "nat", "mangle", "raw", "security"}, table)
}

func nftTracks(words []string) bool {
	for _, word := range words {
		if slices.Contains([]string{"ct", "masquerade", "snat", "dnat", "redirect", "tproxy", "socket", "synproxy"}, word) {
			return true
		}
	}
	return false
}

// veth looks for veth pairs whose other end loses frames that XDP redirects to it. An end without an XDP program and without
// GRO does not poll, and no counter shows the loss.
func (e *examiner) veth() error {
	before := len(e.Findings)
	for _, link := range e.links {
		a := link.Attrs()
		if link.Type() != "veth" || !slices.Contains(e.names, a.Name) {
			continue
		}
		look := func(prefix string) error {
			peer, err := netlink.LinkByIndex(a.ParentIndex)
			if err != nil {
				return fmt.Errorf("other end of %s: %w", a.Name, err)
			}
			name := peer.Attrs().Name
			on, err := ethtoolValue(name, ethtoolGetGRO)
			if err != nil {
				return fmt.Errorf("GRO of %s: %w", name, err)
			}
			if x := peer.Attrs().Xdp; on == 0 && (x == nil || !x.Attached) {
				e.Bad(finding.Fail, prefix+"ethtool -K "+name+" gro on", "the other end of %s loses what XDP redirects to it, and counts nothing: it has neither GRO nor a program", a.Name)
			}
			return nil
		}
		if a.NetNsID < 0 {
			if err := look(""); err != nil {
				return err
			}
			continue
		}
		if found, err := inNamed(a.NetNsID, look); err != nil {
			return err
		} else if !found {
			e.Bad(finding.Warn, "ethtool -K PEER gro on", "the other end of %s is in a namespace without a name: see there whether GRO is on", a.Name)
		}
	}
	if e.Silent(before) {
		e.OK("the other ends of veth pairs take redirected frames")
	}
	return nil
}

// inNamed runs f in the named namespace that has this number here; found reports whether there is one.
func inNamed(nsid int, f func(prefix string) error) (found bool, err error) {
	paths, _ := filepath.Glob("/run/netns/*") // the pattern is good
	for _, path := range paths {
		there, err := netns.GetFromPath(path)
		if err != nil {
			continue
		}
		number, err := netlink.GetNetNsIdByFd(int(there))
		if err != nil || number != nsid {
			there.Close()
			continue
		}
		defer there.Close()
		return true, inNamespace(there, func() error { return f("ip netns exec " + filepath.Base(path) + " ") })
	}
	return false, nil
}

// inNamespace runs f on a thread that has entered a namespace.
func inNamespace(ns netns.NsHandle, f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := netns.Set(ns); err != nil {
			result <- fmt.Errorf("enter namespace: %w", err)
			return
		}
		result <- f()
	}()
	return <-result
}
