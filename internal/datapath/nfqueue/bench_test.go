package nfqueue

import (
	"fmt"
	"net/netip"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/packet"
)

// BenchmarkWorker is what a packet costs from the queue to the verdict, without the kernel.
func BenchmarkWorker(b *testing.B) {
	for _, c := range []struct {
		name, line, spec string
		flows            int
	}{
		{"udp-1-flow", "udp 10.61.0.2:%d > 10.96.0.1:7000 payload=64", "", 1},
		{"udp-10000-flows", "udp 10.61.0.2:%d > 10.96.0.1:7000 payload=64", "", 10000},
		{"udp6-10000-flows", "udp [fd61::2]:%d > [fd96::1]:7000 payload=64", "", 10000},
		{"stateless-10000-flows", "udp 10.61.0.2:%d > 10.96.0.1:7000 payload=64", "conntrack: false", 10000},
		{"tcp-1400-bytes", "tcp 10.61.0.2:%d > 10.96.0.1:7000 flags=ack payload=1400", "", 100},
	} {
		b.Run(c.name, func(b *testing.B) {
			d, _ := one(b, worldSpec(c.spec, 0, 1, 2, 3), nil)
			w := d.workers[0]
			w.queue = &silentQueue{}
			var data [][]byte
			for i := range c.flows {
				data = append(data, ip(b, fmt.Sprintf(c.line, 10000+i))[0])
			}
			b.ReportAllocs()
			at := 0
			for b.Loop() {
				p := data[at%len(data)]
				at++
				slot := at % DefaultBatch
				w.packets[slot] = Packet{ID: uint32(at), Data: p[:min(len(p), DefaultCopyRange)], Length: len(p)}
				if slot == DefaultBatch-1 {
					if err := w.iterate(DefaultBatch); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

// BenchmarkWire is what reading a packet's message and writing its verdict cost.
func BenchmarkWire(b *testing.B) {
	q := &kernelQueue{}
	message := packetMessage(42, etherIPv4, ip(b, "udp 10.61.0.2:1 > 10.96.0.1:7000 payload=64")[0], attr32(5, 3), attr32(9, 3))
	into := make([]Packet, 1)
	out := make([]byte, 0, 64)
	b.ReportAllocs()
	for b.Loop() {
		q.parse(message, into)
		out = appendVerdict(out[:0], 7, Verdict{ID: into[0].ID, Mark: 1, Marked: true})
	}
}

// BenchmarkRootNFQueue floods a real queue and reports the processor time of the worker's thread per packet: receiving,
// deciding, and in the kernel's part of the verdict routing and sending.
//
//	go test -run xx -bench RootNFQueue -benchtime 2000000x ./internal/datapath/nfqueue
func BenchmarkRootNFQueue(b *testing.B) {
	for _, batch := range []int{1, 64, 256} {
		b.Run(fmt.Sprintf("batch-%d", batch), func(b *testing.B) { flood(b, Config{Batch: batch}) })
	}
}

func flood(b *testing.B, config Config) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4)) // as weir lb run has it: spare Ps in addition to the worker's
	w := newWorld(b, 1, 1, config)
	if out, err := w.backends[0].Exec(b.Context(), "iptables", "-w", "-t", "raw", "-A", "PREROUTING", "-p", "udp", "--dport", "7100", "-j", "DROP"); err != nil {
		b.Fatal(err, out)
	}
	w.run(worldSpec("", 0))
	var stop atomic.Bool
	ended := make(chan uint64)
	go func() { ended <- w.flood(&stop) }()
	defer func() { stop.Store(true); <-ended }()
	if _, err := await(w.d, func(s *Stats) bool { return s.Queues[0].Packets > 20_000 }); err != nil {
		b.Fatal(err)
	}
	type mark struct {
		packets, batches uint64
		cpu, at          time.Duration
	}
	take := func() (m mark) {
		w.d.mu.Lock()
		defer w.d.mu.Unlock()
		w.d.group.Do(func(w *worker) {
			var usage unix.Rusage
			if err := unix.Getrusage(unix.RUSAGE_THREAD, &usage); err != nil {
				b.Error(err)
			}
			m = mark{w.counters.Packets, w.counters.Batches, time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), w.now()}
		})
		return m
	}
	b.ResetTimer()
	first := take()
	last := first
	for last.packets-first.packets < uint64(b.N) {
		time.Sleep(10 * time.Millisecond)
		last = take()
	}
	b.StopTimer()
	n := float64(last.packets - first.packets)
	b.ReportMetric(float64((last.cpu-first.cpu).Nanoseconds())/n/1000, "cpu-µs/packet")
	b.ReportMetric(n/float64(last.batches-first.batches), "packets/read")
	b.ReportMetric(n/(last.at-first.at).Seconds()/1000, "kpps")
	b.ReportMetric(float64(last.cpu-first.cpu)/float64(last.at-first.at), "busy")
	b.ReportMetric(0, "ns/op")
}

// flood sends small datagrams of many flows as fast as the client can, until stop.
func (w *world) flood(stop *atomic.Bool) (sent uint64) {
	client, vip := endpoints(false, 0)
	const size = 64
	messages, vectors := make([]mmsghdr, size), make([]unix.Iovec, size)
	to := unix.RawSockaddrLinklayer{Family: unix.AF_PACKET, Protocol: 0x0008, Ifindex: int32(w.index), Halen: 6}
	copy(to.Addr[:], w.hardware[:])
	for i := range messages {
		p := packet.Build{Src: netip.AddrPortFrom(client.Addr(), uint16(1000+i)), Dst: netip.AddrPortFrom(vip.Addr(), 7100), Proto: flow.ProtoUDP, Payload: tag(i, 64)}
		data := p.Append(nil)
		vectors[i].Base = &data[0]
		vectors[i].SetLen(len(data))
		messages[i].header = unix.Msghdr{Name: (*byte)(unsafe.Pointer(&to)), Namelen: unix.SizeofSockaddrLinklayer, Iov: &vectors[i]}
		messages[i].header.SetIovlen(1)
	}
	for !stop.Load() {
		n, _, _ := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(w.injector), uintptr(unsafe.Pointer(&messages[0])), size, 0, 0, 0)
		if int(n) > 0 {
			sent += uint64(n)
		}
	}
	return sent
}
