package flowfile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"

	"golang.org/x/sys/unix"
)

const (
	headerSize = 4096
	magic      = "weir flows\n"
	version    = 1
	headerUsed = 16 + 4 + 4 + 4 + 4 + 8 + 16 // and a checksum
)

// MaxRecords bounds the entries of all workers.
const MaxRecords = 1 << 26

// layout is what the header says.
type layout struct {
	workers, perWorker int
	namespace          uint64   // inode of the network namespace
	boot               [16]byte // start of the boot id
}

func (l *layout) records() int { return l.workers * l.perWorker }
func (l *layout) size() int64  { return headerSize + int64(l.records())*recordSize }

// marshal returns the header.
func (l *layout) marshal() []byte {
	b := make([]byte, 0, headerUsed+4)
	b = append(b, magic...)
	b = append(b, make([]byte, 16-len(magic))...)
	for _, n := range []int{version, recordSize, l.workers, l.perWorker} {
		b = binary.LittleEndian.AppendUint32(b, uint32(n))
	}
	b = binary.LittleEndian.AppendUint64(b, l.namespace)
	b = append(b, l.boot[:]...)
	return binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
}

// unmarshal reads a header. size is that of the file.
func unmarshal(b []byte, size int64) (l layout, err error) {
	if len(b) < headerUsed+4 || !bytes.HasPrefix(b, []byte(magic)) {
		return l, fmt.Errorf("it is no file of flows")
	}
	if crc32.ChecksumIEEE(b[:headerUsed]) != binary.LittleEndian.Uint32(b[headerUsed:]) {
		return l, fmt.Errorf("its header is damaged")
	}
	number := func(i int) int { return int(binary.LittleEndian.Uint32(b[16+4*i:])) }
	if number(0) != version || number(1) != recordSize {
		return l, fmt.Errorf("its format is version %d with records of %d bytes, this weir has version %d with %d", number(0), number(1), version, recordSize)
	}
	l.workers, l.perWorker = number(2), number(3)
	if l.workers < 1 || l.perWorker < 1 || l.workers > MaxRecords || l.perWorker > MaxRecords/l.workers {
		return l, fmt.Errorf("its header says %d workers with %d flows each", l.workers, l.perWorker)
	}
	if size != l.size() {
		return l, fmt.Errorf("it has %d bytes instead of %d", size, l.size())
	}
	l.namespace = binary.LittleEndian.Uint64(b[32:])
	copy(l.boot[:], b[40:])
	return l, nil
}

// here fills in what identifies this boot and the network namespace of the calling thread.
func (l *layout) here() error {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	copy(l.boot[:], bytes.ReplaceAll(id, []byte("-"), nil))
	var st unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &st); err != nil {
		return fmt.Errorf("network namespace: %w", err)
	}
	l.namespace = st.Ino
	return nil
}

// usable says why records of another layout mean nothing here; "": they do.
func (l *layout) usable(here *layout) string {
	switch {
	case l.boot != here.boot:
		return "it is of an earlier boot of this machine"
	case l.namespace != here.namespace:
		return "it belongs to another network namespace"
	}
	return ""
}
