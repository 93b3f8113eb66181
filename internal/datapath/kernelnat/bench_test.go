package kernelnat

import (
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/datapath/ebpf/ebpftest"
	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/packet"
)

// BenchmarkProgram is what the program costs a packet that it passes: of another flow, of another protocol, and of a flow whose direction is
// suspended. One that it forwards changes, so that it cannot be given to the program again and again.
func BenchmarkProgram(b *testing.B) {
	bench := newFrameBench(b, "knatbench")
	f := bench.flows[4]
	bench.table.Suspend(true, true)
	for name, change := range map[string]func(*packet.Build){
		"suspended":  func(*packet.Build) {},
		"other_flow": func(p *packet.Build) { p.Src = f.Backend },
		"TCP":        func(p *packet.Build) { p.Proto = flow.ProtoTCP },
	} {
		b.Run(name, func(b *testing.B) {
			in := packet.Build{Src: f.Client, Dst: f.VIP, Proto: flow.ProtoUDP, Payload: make([]byte, 64)}
			change(&in)
			frame := in.AppendFrame(nil, [6]byte{}, [6]byte{2, 0, 0, 0, 0, 1}, in.Append(nil))
			var spent time.Duration
			ebpftest.Do(b, bench.host, func() (err error) {
				_, spent, err = bench.table.collection.Programs[bpf.UDPNATProgWeirUdpnat].Benchmark(frame, b.N, b.ResetTimer)
				return err
			})
			b.ReportMetric(float64(spent.Nanoseconds()), "ns/packet")
		})
	}
}
