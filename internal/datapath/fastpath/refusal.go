package fastpath

import (
	"fmt"
	"slices"

	"github.com/weir-lb/weir/internal/datapath/ebpf"
	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/steering/cid"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// refusal returns why the queue must decide a snapshot alone; "" if the program decides every packet as the queue does.
func refusal(s *lb.Snapshot) string {
	caps := ebpf.Caps(attach.HookTCX)
	switch {
	case len(s.Rules) > 0 || s.PromiscuousPing:
		return "flow rules are decided by the queue only"
	case s.Tier != nil:
		return "a tier of balancers is the queue's only"
	case s.Hash != lb.SipHash:
		return "the hash " + s.Hash.String() + " is the queue's only"
	case s.Limits.Flows > caps.MaxFlows:
		return fmt.Sprintf("limits.flows is %d; the program's table holds %d", s.Limits.Flows, caps.MaxFlows)
	}
	for _, service := range s.Services {
		if service.Stateless {
			return fmt.Sprintf("service %s does without conntrack; the program remembers flows", service.Name)
		}
		if service.CID != nil && len(service.CID.Layouts) > caps.MaxLayouts {
			return fmt.Sprintf("service %s has %d CID layouts; the program reads %d", service.Name, len(service.CID.Layouts), caps.MaxLayouts)
		}
		if service.CID != nil && slices.ContainsFunc(service.CID.Layouts, func(l cid.Layout) bool { return l.Mask != cid.MaskNone }) {
			return fmt.Sprintf("service %s hides node ids in its connection ids; only the queue reads them", service.Name)
		}
	}
	return ""
}
