package ebpf

import (
	"encoding/binary"
	"sync/atomic"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/datapath/ebpf/ebpftest"
	"github.com/weir-lb/weir/internal/datapath/ebpf/maps"
)

// TestRootAcknowledgementRacesSYNACK: a backend sends its SYN-ACK again while the client's acknowledgement of the first one is
// under way, on another processor. The connection is established afterwards, in both directions: one that were noted as
// opening would lose its source port to others, and its entry before its time.
func TestRootAcknowledgementRacesSYNACK(t *testing.T) {
	t.Parallel()
	const flows, established = 4000, 2 // without the mend four in five are lost
	for _, hook := range hooks {
		t.Run(hook.String(), func(t *testing.T) {
			w := newWorld(t)
			defer w.close()
			d := w.serving(t, hook, `
limits: {flows: 65536}
services:
- name: one
  mode: nat
  vips: [{address: "192.0.2.1", protocol: tcp, port: 80}]
  backends: [{name: a, address: "10.1.0.1", port: 7000}]
`)
			d.tables.Control.Now = 1 << 30
			program := d.program(hook)
			send := func(frame []byte, client, at int) error {
				binary.BigEndian.PutUint32(frame[14+at:], uint32(10<<24|1<<20|client))
				_, err := program.Run(&ebpf.RunOptions{Data: frame, DataOut: make([]byte, 256), Repeat: 1})
				return err
			}
			const source, destination = 12, 16
			syn := frameOf(text(t, "tcp 10.0.0.1:5000 > 192.0.2.1:80 flags=syn"))
			acknowledgement := frameOf(text(t, "tcp 10.0.0.1:5000 > 192.0.2.1:80 flags=ack"))
			answer := frameOf(text(t, "tcp 10.1.0.1:7000 > 10.0.0.1:5000 flags=syn,ack"))
			ebpftest.Do(t, w.host, func() error {
				for i := range flows {
					if err := send(syn, i, source); err != nil {
						return err
					}
					if err := send(answer, i, destination); err != nil {
						return err
					}
				}
				return nil
			})
			d.tables.Control.Now += 1100
			var ready [2]atomic.Int64
			w.onEachCPU(t, func(cpu int) error {
				if cpu > 1 {
					return nil
				}
				for i := range flows {
					ready[cpu].Store(int64(i + 1))
					busily(func() bool { return ready[1-cpu].Load() > int64(i) }) // both begin a flow in the same moment
					if cpu == 0 {
						if err := send(answer, i, destination); err != nil {
							return err
						}
					} else if err := send(acknowledgement, i, source); err != nil {
						return err
					}
				}
				return nil
			})
			live, opening := [2]int{}, [2]int{}
			count := func(which int, fingerprint, meta uint64) {
				if fingerprint <= bpf.FingerprintBusy || !maps.Alive(meta, d.now()) {
					return
				}
				if live[which]++; meta>>bpf.StateShift&3 != established {
					opening[which]++
				}
			}
			for i := range d.tables.Flows {
				for _, slot := range d.tables.Flows[i].Slots {
					count(0, slot.Fingerprint, slot.Meta)
				}
			}
			for i := range d.tables.Replies {
				for _, slot := range d.tables.Replies[i].Slots {
					count(1, slot.Fingerprint, slot.Meta)
				}
			}
			if live != [2]int{flows, flows} || opening != [2]int{} {
				t.Errorf("live flows and replies %v, want %d; of these not established %v", live, flows, opening)
			}
		})
	}
}
