package kernelnat

import (
	"testing"

	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// TestRootForwards sends datagrams of many sizes both ways: the kernel forwards all that fit into one packet, unchanged.
func TestRootForwards(t *testing.T) {
	t.Parallel()
	for name, p := range allPlaces() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lab := netlabtest.Up(t, natNet("knat"+name))
			n := newFlow(t, lab, p)
			n.exchange([]byte("through user space"))
			table := open(t, lab.Namespace("nat"), Config{})
			id := n.mustAdd(table)
			sizes := []int{0, 1, 2, 3, 17, 18, 63, 100, 555, 1200, 1400}
			wantBytes := uint64(0)
			for _, size := range sizes {
				payload := make([]byte, size)
				for i := range payload {
					payload[i] = byte(i + size)
				}
				if forward, backward := n.exchange(payload); forward+backward > 0 {
					t.Errorf("%d bytes: user space forwarded %d and %d: %+v", size, forward, backward, table.Report())
				}
				wantBytes += uint64(size)
			}
			to, back := table.Traffic(1)
			if to.Packets < uint64(len(sizes)) || back.Packets < uint64(len(sizes)) || to.Bytes < wantBytes || back.Bytes < wantBytes {
				t.Errorf("counted %+v and %+v, want %d datagrams of %d bytes", to, back, len(sizes), wantBytes)
			}
			// In fragments, both ways: user space forwards them.
			if p.client != "nat" {
				if forward, _ := n.exchange(make([]byte, 3000)); forward == 0 {
					t.Error("the kernel forwarded fragments")
				}
			}
			table.Remove(id)
			if forward, backward := n.exchange([]byte("after Remove")); forward == 0 || backward == 0 {
				t.Error("the kernel forwards a flow that was removed")
			}
		})
	}
}
