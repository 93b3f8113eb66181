package engine

import (
	"encoding/binary"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/dtls/arena"
	"github.com/weir-lb/weir/internal/dtls/record"
)

// BenchmarkRestore is the time that a process needs for each session of the one before until it serves.
func BenchmarkRestore(b *testing.B) {
	const sessions = 20_000
	cids := ByteOwnerCIDs(6, 1)
	memory, err := arena.NewMemory()
	if err != nil {
		b.Fatal(err)
	}
	duplicate := func() *os.File {
		fd, err := unix.FcntlInt(memory.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			b.Fatal(err)
		}
		return os.NewFile(uintptr(fd), "sessions")
	}
	size := arena.Config{Slots: sessions}
	made, err := arena.New(size, duplicate())
	if err != nil {
		b.Fatal(err)
	}
	keys := record.Keys{ClientKey: [32]byte{1}, ServerKey: [32]byte{2}}
	for i := range sessions {
		id, err := cids.new(0, 1)
		if err != nil {
			b.Fatal(err)
		}
		binary.BigEndian.PutUint32(id[len(id)-4:], uint32(i))
		if made.Put(&arena.State{
			Suite: record.PSKWithAES128CCM8, Keys: keys, ReadCID: id, WriteCID: id[:2], Limit: record.MaxPlaintext, Identity: "device", Flags: arena.HasCID,
			Path: arena.Path{Addr: addr(i), Proven: true},
		}) == nil {
			b.Fatal("no slot")
		}
	}
	made.Close()
	b.ReportAllocs()
	for b.Loop() {
		a, loss, err := arena.Open(size, duplicate(), nil)
		if err != nil || loss != (arena.Loss{}) {
			b.Fatal(err, loss)
		}
		x := newWire(b, func(c *Config) { c.Arena, c.CIDs = a, cids })
		e := &Engine{cfg: *x.w.cfg, workers: []*Worker{x.w}}
		e.restore(time.Second)
		if n := x.stats().Restored; n != sessions {
			b.Fatalf("%d sessions", n)
		}
		a.Close()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/sessions, "ns/session")
}
