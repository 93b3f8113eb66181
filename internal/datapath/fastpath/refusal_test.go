package fastpath

import (
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/steering/cid"
	"github.com/weir-lb/weir/internal/steering/lb"
)

func TestRefusals(t *testing.T) {
	plain := func() *lb.Snapshot { return &lb.Snapshot{Services: []*lb.Service{{Name: "s", Mode: lb.Mark}}} }
	if why := refusal(plain()); why != "" {
		t.Error(why)
	}
	for want, change := range map[string]func(*lb.Snapshot){
		"flow rules":                 func(s *lb.Snapshot) { s.Rules = []*lb.FlowRule{{}} },
		"flow rules are":             func(s *lb.Snapshot) { s.PromiscuousPing = true },
		"tier":                       func(s *lb.Snapshot) { s.Tier = &lb.Tier{} },
		"hash nfqlb":                 func(s *lb.Snapshot) { s.Hash = lb.NFQLB },
		"limits.flows":               func(s *lb.Snapshot) { s.Limits.Flows = 1 << 30 },
		"s does without conntrack":   func(s *lb.Snapshot) { s.Services[0].Stateless = true },
		"s has 5 CID layouts":        func(s *lb.Snapshot) { s.Services[0].CID = &cid.Set{Layouts: make([]cid.Layout, 5)} },
		"hides node ids in its conn": func(s *lb.Snapshot) { s.Services[0].CID = &cid.Set{Layouts: []cid.Layout{{Mask: cid.MaskSipHash}}} },
	} {
		s := plain()
		change(s)
		if why := refusal(s); !strings.Contains(why, want) {
			t.Errorf("want %q: %q", want, why)
		}
	}
}
