// Package ebpftest is what tests of programs in the kernel have in common.
package ebpftest

import (
	"net/netip"
	"testing"

	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// Hooks are those that programs are compiled for.
func Hooks() []attach.Hook { return []attach.Hook{attach.HookTCX, attach.HookXDP} }

// Namespace makes a namespace with a default route, in which programs run by BPF_PROG_TEST_RUN: the routes of clients are real
// look-ups there. index is that of its interface lb0.
func Namespace(t testing.TB) (host *netlab.Host, index int) {
	t.Helper()
	lab := netlabtest.Up(t, netlab.Topology{
		Name: "ebtest",
		Namespaces: []netlab.Namespace{
			{
				Name: "lb", Forward: true,
				Routes: netlab.Default("10.255.0.2", "fd00:255::2"),
				Neighbours: []netlab.Neighbour{
					{Dev: "lb0", Address: netip.MustParseAddr("10.255.0.2"), MAC: []byte{2, 0, 0, 0, 0, 9}},
					{Dev: "lb0", Address: netip.MustParseAddr("fd00:255::2"), MAC: []byte{2, 0, 0, 0, 0, 9}},
				},
			},
			{Name: "out"},
		},
		Links: []netlab.Link{netlab.Cable("lb lb0 10.255.0.1/24 fd00:255::1/64", "out out0")},
	})
	host = lab.Namespace("lb")
	index, _, err := host.Interface("lb0")
	if err != nil {
		t.Fatal(err)
	}
	return host, index
}

// Do runs f in a namespace.
func Do(t testing.TB, host *netlab.Host, f func() error) {
	t.Helper()
	if err := host.Do(f); err != nil {
		t.Fatal(err)
	}
}

// SkBuff is the part of struct __sk_buff that TEST_RUN gives and takes.
type SkBuff struct {
	Len, PktType, Mark uint32
	_                  [45]uint32
}

// Redirected is the verdict of a frame that leaves.
func Redirected(hook attach.Hook) uint32 {
	if hook == attach.HookTCX {
		return 7
	}
	return 4
}
