package sockets

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Socket is a UDP socket, or a TCP socket that listens.
type Socket struct {
	Local netip.AddrPort
	Inode string // as in /proc
}

// Owner is a process that has a socket.
type Owner struct {
	PID  int // 0: not seen from here, such as that of another user
	Name string
	Own  bool // it runs the same program as the calling process
}

// String names the process as doctors do.
func (o Owner) String() string {
	if o.PID == 0 {
		return "a process that is not seen from here"
	}
	return fmt.Sprintf("%s (process %d)", o.Name, o.PID)
}

// At returns the sockets of a local port: UDP ones if protocol is "udp", those that listen if it is "tcp". proc is where /proc is.
func At(proc, protocol string, port uint16) (all []Socket, err error) {
	for _, file := range []string{protocol, protocol + "6"} {
		text, err := os.ReadFile(filepath.Join(proc, "thread-self/net", file))
		if os.IsNotExist(err) { // IPv6 is off
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, s := range parse(string(text), protocol == "tcp") {
			if s.Local.Port() == port {
				all = append(all, s)
			}
		}
	}
	return all, nil
}

// parse reads /proc/net/tcp, udp, and those of IPv6. Lines of another form, such as the heading, are left out.
func parse(text string, listening bool) (all []Socket) {
	const stateListen = "0A"
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 10 || listening && words[3] != stateListen {
			continue
		}
		if local, ok := parseAddress(words[1]); ok {
			all = append(all, Socket{local, words[9]})
		}
	}
	return all
}

// parseAddress reads 0100007F:00B3, words of 32 bits in the order of the machine, and the port.
func parseAddress(text string) (netip.AddrPort, bool) {
	host, port, _ := strings.Cut(text, ":")
	raw, err := hex.DecodeString(host)
	number, err2 := strconv.ParseUint(port, 16, 16)
	if err != nil || err2 != nil || len(raw) != 4 && len(raw) != 16 {
		return netip.AddrPort{}, false
	}
	for word := raw; len(word) > 0; word = word[4:] {
		binary.NativeEndian.PutUint32(word, binary.BigEndian.Uint32(word))
	}
	address, _ := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(address, uint16(number)), true
}

// Holders returns the processes that have sockets open, by inode; those that are not seen from here are left out.
func Holders(proc string, inodes ...string) map[string]int {
	wanted := map[string]string{}
	for _, inode := range inodes {
		wanted["socket:["+inode+"]"] = inode
	}
	found := map[string]int{}
	processes, _ := filepath.Glob(filepath.Join(proc, "[0-9]*")) // the pattern is good
	for _, dir := range processes {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		files, err := os.ReadDir(filepath.Join(dir, "fd"))
		if err != nil {
			continue // the process ended, or we may not read it
		}
		for _, file := range files {
			target, err := os.Readlink(filepath.Join(dir, "fd", file.Name()))
			if inode, ok := wanted[target]; ok && err == nil {
				found[inode] = pid
			}
		}
	}
	return found
}

// Owners returns the process of each socket, each process once.
func Owners(proc string, of []Socket) (all []Owner) {
	var inodes []string
	for _, s := range of {
		inodes = append(inodes, s.Inode)
	}
	holders, seen := Holders(proc, inodes...), map[int]bool{}
	own, _ := os.Readlink(filepath.Join(proc, "self/exe")) // empty: none is our own
	for _, inode := range inodes {
		o := Owner{PID: holders[inode]}
		if seen[o.PID] {
			continue
		}
		seen[o.PID] = true
		if o.PID != 0 {
			o.Name = Name(proc, o.PID)
			program, err := os.Readlink(filepath.Join(proc, strconv.Itoa(o.PID), "exe"))
			o.Own = err == nil && program == own
		}
		all = append(all, o)
	}
	return all
}

// Name returns the name of a process; empty if it has just ended.
func Name(proc string, pid int) string {
	name, _ := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "comm")) // empty if it just ended
	return strings.TrimSpace(string(name))
}
