package link

import (
	"hash/crc32"
	"net/netip"
	"time"
	"unsafe"
)

// The keys of the frames outlive the process in memory that the caller holds: a process that follows goes on with them until it has sessions of its
// own, which take up to a second. Otherwise all frames of that time would be lost, also those that wait in its socket. The sessions themselves end
// with the process, since a nonce must not be used twice; the code over frames has none.
const (
	leftPeers   = 64 // further nodes have no entry
	leftVersion = 1
	macKeyBytes = 64 // at most
	// leftLife is for how long the keys of the process before are accepted. The other node drops them overlap after it has newer ones.
	leftLife = 3 * overlap
)

// MemoryBytes is how much memory Links.Keep needs.
const MemoryBytes = leftPeers * leftEntry

// leftEntry is the size of leftKeys.
const leftEntry = 320

// leftKeys are those of an address: what stands in the memory.
type leftKeys struct {
	sum     uint32 // CRC-32C of what follows; 0 of an unused entry
	version uint8
	reads   uint8 // keys for reading
	_       [2]byte
	address [16]byte
	port    uint16
	flags   uint16 // 1: the address is of IPv4
	lengths [1 + maxSessions]uint8
	keys    [1 + maxSessions][macKeyBytes]byte // for writing, then for reading
	_       [leftEntry - 4 - 4 - 16 - 4 - (1+maxSessions)*(1+macKeyBytes)]byte
}

const _ = -(unsafe.Sizeof(leftKeys{}) - leftEntry) // it has that size

func (k *leftKeys) checksum() uint32 {
	all := unsafe.Slice((*byte)(unsafe.Pointer(k)), leftEntry)
	return max(1, crc32.Checksum(all[4:], crc32.MakeTable(crc32.Castagnoli)))
}

func (k *leftKeys) addr() netip.AddrPort {
	a := netip.AddrFrom16(k.address)
	if k.flags&1 != 0 {
		a = a.Unmap()
	}
	return netip.AddrPortFrom(a, k.port)
}

// key returns the i-th key.
func (k *leftKeys) key(i int) []byte { return k.keys[i][:min(int(k.lengths[i]), macKeyBytes)] }

// left is the keys of the process before for the frames of one address.
type left struct {
	write macKey
	read  []macKey
	ends  time.Duration
}

// Keep has the keys of frames outlive the process in memory of MemoryBytes, aligned to 8 bytes and zero at first, and goes on with those that are there. It
// is to be called once, before the first datagram.
func (l *Links) Keep(memory []byte, now time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	entries := unsafe.Slice((*leftKeys)(unsafe.Pointer(&memory[:MemoryBytes][0])), leftPeers)
	l.left = map[netip.AddrPort]*left{}
	l.memory = map[netip.AddrPort]*leftKeys{}
	for i := range entries {
		k := &entries[i]
		if k.sum != k.checksum() || k.version != leftVersion || k.reads > maxSessions || k.reads == 0 {
			*k = leftKeys{}
			l.unused = append(l.unused, k)
			continue
		}
		before := &left{write: newMACKey(k.key(0)), ends: now + leftLife}
		for i := range int(k.reads) {
			before.read = append(before.read, newMACKey(k.key(1+i)))
		}
		l.left[k.addr()], l.memory[k.addr()] = before, k
	}
	for _, p := range l.peers {
		p.before = l.left[p.addr]
		l.publish(p)
	}
}

// store writes the keys of a peer's sessions, for the next process. Without sessions those before stay: the other node may go on to use them.
func (l *Links) store(p *Peer) {
	if l.memory == nil || len(p.sessions) == 0 {
		return
	}
	k := l.memory[p.addr]
	if k == nil {
		if len(l.unused) == 0 {
			return
		}
		k = l.unused[len(l.unused)-1]
		l.unused = l.unused[:len(l.unused)-1]
		l.memory[p.addr] = k
	}
	next := leftKeys{version: leftVersion, reads: uint8(len(p.sessions)), address: p.addr.Addr().As16(), port: p.addr.Port()}
	if p.addr.Addr().Is4() {
		next.flags = 1
	}
	set := func(i int, key []byte) { next.lengths[i] = uint8(copy(next.keys[i][:], key)) }
	set(0, p.current().writeKey)
	for i, s := range p.sessions {
		set(1+i, s.readKey)
	}
	next.sum = next.checksum()
	if *k == next {
		return
	}
	k.sum = 0 // until all of it is there
	*k = next
}

// forget wipes the keys of an address.
func (l *Links) forget(addr netip.AddrPort) {
	delete(l.left, addr)
	if k := l.memory[addr]; k != nil {
		*k = leftKeys{}
		l.unused = append(l.unused, k)
		delete(l.memory, addr)
	}
}
