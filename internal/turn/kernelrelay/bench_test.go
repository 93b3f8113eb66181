package kernelrelay

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/datapath/ebpf/ebpftest"
	"github.com/weir-lb/weir/internal/steering/packet"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// BenchmarkRelay measures the programs by BPF_PROG_TEST_RUN: ns/packet is the 20th percentile of single runs, less that of an
// ARP frame. The redirect itself is not in it.
func BenchmarkRelay(b *testing.B) {
	netlabtest.Root(b)
	host, index := ebpftest.Namespace(b)
	for _, hook := range ebpftest.Hooks() {
		for i, name := range []string{"4to4", "", "6to6", "4to6", "6to4"} {
			for _, size := range []int{100, 1200} {
				for _, up := range []bool{true, false} {
					if name == "" {
						continue
					}
					direction := map[bool]string{true: "up", false: "down"}[up]
					b.Run(fmt.Sprintf("%s/%s/%s/%d", hook, name, direction, size), func(b *testing.B) {
						ebpftest.Do(b, host, func() error { return benchRelay(b, index, hook, modelChannels()[i], up, size) })
					})
				}
			}
		}
	}
}

func benchRelay(b *testing.B, index int, hook attach.Hook, c modelChannel, up bool, size int) error {
	r, err := openRelayBench(hook, index)
	if err != nil {
		return err
	}
	defer r.o.Close()
	if _, err := r.o.Add(c.Channel); err != nil {
		return err
	}
	build := packet.Build{Src: c.Peer, Dst: c.Relay, Proto: 17, Payload: make([]byte, size)}
	want := "down"
	if up {
		build.Src, build.Dst, build.Payload, want = c.Client, c.Listener, channelData(c.Number, build.Payload), "up"
	}
	frame := build.AppendFrame(nil, [6]byte{}, [6]byte{2}, build.Append(nil))
	arp := append(append(make([]byte, 12), 8, 6), make([]byte, 50)...)
	if end, _, _, err := r.run(frame); err != nil || end != want {
		return fmt.Errorf("the frame is %s: %w", end, err)
	}
	program := relayProgram(r.o.objects[hook])
	timed := func(frame []byte) (float64, error) {
		_, took, err := program.Benchmark(frame, 1, nil)
		return float64(took) / float64(time.Nanosecond), err
	}
	var all, floor []float64
	for b.Loop() {
		for range 200 {
			f, err := timed(arp)
			if err != nil {
				return err
			}
			n, err := timed(frame)
			if err != nil {
				return err
			}
			all, floor = append(all, n), append(floor, f)
		}
	}
	b.ReportMetric(undisturbed(all)-undisturbed(floor), "ns/packet")
	b.ReportMetric(undisturbed(floor), "ns/arp")
	return nil
}

// undisturbed is the 20th percentile: the machine is shared, and what disturbs only adds.
func undisturbed(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/5]
}
