package doctor

import (
	"errors"
	"strings"
	"testing"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/finding"
)

// Each reason why the kernel does not forward flows of weir nat is a finding with a remedy; if there is none, the finding is ok.
func TestNATOffload(t *testing.T) {
	on := func(o v1.NATOffload) *v1.NATStats { return &v1.NATStats{Entries: 9, Offload: &o} }
	faulty := on(v1.NATOffload{})
	faulty.Faults.LossBackward = 5
	for name, test := range map[string]struct {
		at   NATOffload
		want []string // one of each finding; none: ok
	}{
		"none runs":          {NATOffload{}, nil},
		"it works":           {NATOffload{Running: on(v1.NATOffload{Flows: 8})}, nil},
		"of another user":    {NATOffload{Privilege: errors.New("CAP_BPF is missing"), Running: on(v1.NATOffload{})}, nil},
		"no privilege":       {NATOffload{Privilege: errors.New("CAP_BPF is missing")}, []string{"CAP_BPF is missing"}},
		"an old kernel":      {NATOffload{Kernel: errors.New("invalid argument")}, []string{"invalid argument"}},
		"in user space":      {NATOffload{Running: &v1.NATStats{}}, []string{"in user space"}},
		"both":               {NATOffload{Kernel: errors.New("invalid argument"), Running: &v1.NATStats{}}, []string{"in user space", "invalid argument"}},
		"an interface, full": {NATOffload{Running: on(v1.NATOffload{MaxFlows: 4, Refused: map[string]uint64{"full": 7}, Interfaces: []v1.EBPFInterface{{Name: "eth0", Hook: "tcx"}, {Name: "wg0", Hook: "none", Why: "no Ethernet"}}})}, []string{"wg0 stay in user space: no Ethernet", "7 attempts"}},
		"faults":             {NATOffload{Running: faulty}, []string{"faults are on"}},
	} {
		got := test.at.Findings()
		if len(test.want) == 0 && (len(got) != 1 || got[0].Level != finding.OK) || len(test.want) > 0 && len(got) != len(test.want) {
			t.Errorf("%s: %+v", name, got)
			continue
		}
		for i, want := range test.want {
			if f := got[i]; f.Level != finding.Warn || f.Remedy == "" || !strings.Contains(f.What, want) {
				t.Errorf("%s: %+v, want a warning of %q", name, f, want)
			}
		}
	}
}
