package lb

import (
	"fmt"
	"strings"
	"testing"
)

// nfqlbSpec is a tier of balancers in the place of nfqlb, with backends named after their marks, none with an index.
func nfqlbSpec(marks ...uint32) Spec {
	s := ServiceSpec{Name: "s", Mode: ptr(Mark), Flows: []FlowSpec{{Name: "all"}}}
	for _, mark := range marks {
		s.Backends = append(s.Backends, BackendSpec{Name: fmt.Sprint("b", mark), Mark: mark})
	}
	return Spec{Hash: NFQLB, MaglevSize: 9973, Services: []ServiceSpec{s}}
}

// slotsOf writes each backend with its slot, by name.
func slotsOf(s *Service) string {
	var parts []string
	for _, b := range s.Backends {
		parts = append(parts, fmt.Sprintf("%s:%d", b.Name, b.Slot))
	}
	return strings.Join(parts, " ")
}

// A reload keeps the slots of nfqlb's table, so that only the flows of a removed backend move.
func TestSlotsOutliveAReload(t *testing.T) {
	var previous *Snapshot
	after := func(spec Spec) *Service {
		t.Helper()
		next, err := CompileAfter(previous, spec, nil, AllCaps())
		if err != nil {
			t.Fatal(err)
		}
		previous = next
		return next.Services[0]
	}
	first := after(nfqlbSpec(101, 102, 103, 104))
	if got := slotsOf(first); got != "b101:0 b102:1 b103:2 b104:3" {
		t.Fatal(got)
	}
	second := after(nfqlbSpec(101, 103, 104))
	if got := slotsOf(second); got != "b101:0 b103:2 b104:3" {
		t.Errorf("without b102: %s", got)
	}
	moved := 0
	for i := range first.Maglev {
		before, now := first.Backends[first.Maglev[i]].Name, second.Backends[second.Maglev[i]].Name
		if before != "b102" && before != now {
			moved++
		}
	}
	if share := 100 * moved / len(first.Maglev); share > 3 {
		t.Errorf("%d %% of the table moved without need", share)
	}
	if got := slotsOf(after(nfqlbSpec(105, 104, 103, 101, 106))); got != "b101:0 b103:2 b104:3 b105:1 b106:4" {
		t.Errorf("new ones take the lowest free slots in the order of the file: %s", got)
	}
	spec := nfqlbSpec(101, 103, 104, 105, 106)
	spec.Services[0].Backends[4].Index = ptr(0)
	if got := slotsOf(after(spec)); got != "b101:4 b103:2 b104:3 b105:1 b106:0" {
		t.Errorf("an index goes before a slot that is kept: %s", got)
	}
	if got := slotsOf(after(nfqlbSpec(101, 103, 104, 105, 106))); got != "b101:4 b103:2 b104:3 b105:1 b106:0" {
		t.Errorf("an index that is taken out of the file leaves the slot: %s", got)
	}
	previous = nil
	if got := slotsOf(after(nfqlbSpec(101, 103, 104))); got != "b101:0 b103:1 b104:2" {
		t.Errorf("after a restart the order of the file counts: %s", got)
	}
}

func TestMembersKeepTheirSlots(t *testing.T) {
	spec := func(names ...string) Spec {
		s := nfqlbSpec(1, 2)
		s.Tier = &TierSpec{Self: "lb3"}
		for _, name := range names {
			s.Tier.Members = append(s.Tier.Members, MemberSpec{Name: name, Mark: 200 + uint32(name[2]-'0')})
		}
		return s
	}
	first, err := Compile(spec("lb1", "lb2", "lb3"), nil, AllCaps())
	if err != nil {
		t.Fatal(err)
	}
	second, err := CompileAfter(first, spec("lb2", "lb3"), nil, AllCaps())
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{1, 2} {
		if m := second.Tier.Members[i]; m.Slot != want {
			t.Errorf("%s has slot %d, want %d", m.Name, m.Slot, want)
		}
	}
}

func TestMissingIndexesAreWarnedOf(t *testing.T) {
	count := func(spec Spec) (n int) {
		for _, w := range spec.Warnings() {
			if strings.Contains(w, "without index: ") {
				n++
			}
		}
		return n
	}
	spec := nfqlbSpec(1, 2, 3)
	spec.Tier = &TierSpec{Self: "a", Members: []MemberSpec{{Name: "a", Mark: 201}, {Name: "b", Mark: 202}}}
	if n := count(spec); n != 2 {
		t.Errorf("%d warnings: %q", n, spec.Warnings())
	}
	for i := range spec.Services[0].Backends {
		spec.Services[0].Backends[i].Index = ptr(i)
	}
	spec.Tier.Members[0].Index, spec.Tier.Members[1].Index = ptr(0), ptr(1)
	if n := count(spec); n != 0 {
		t.Errorf("%d warnings: %q", n, spec.Warnings())
	}
}
