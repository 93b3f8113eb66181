package doctor

import (
	"fmt"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/finding"
)

// NATOffload is what decides whether the kernel forwards established flows of `weir nat`.
type NATOffload struct {
	Privilege error        // what this user lacks; nil: nothing
	Kernel    error        // why the program could not be loaded; nil: it could, or was not tried
	Running   *v1.NATStats // of the running one; nil: none answers
}

// Findings says whether the kernel forwards, why not, and what changes that. What a running `weir nat` reports counts more than what this
// user could do.
func (n *NATOffload) Findings() (all []finding.Finding) {
	add := func(level finding.Level, remedy, what string, args ...any) {
		all = append(all, finding.Finding{Check: "nat_offload", Level: level, What: fmt.Sprintf(what, args...), Remedy: remedy})
	}
	lacks := func() bool {
		switch {
		case n.Privilege != nil:
			add(finding.Warn, `sudo setcap cap_bpf,cap_net_admin,cap_perfmon+ep "$(command -v weir)", or run weir nat as root`, "this user's weir nat forwards everything in user space: %v", n.Privilege)
		case n.Kernel != nil:
			add(finding.Warn, "boot Linux 6.6 or newer, with CONFIG_BPF_SYSCALL and CONFIG_DEBUG_INFO_BTF", "this kernel does not take the program of weir nat, which forwards everything in user space: %v", n.Kernel)
		default:
			return false
		}
		return true
	}
	switch {
	case n.Running == nil:
		if !lacks() {
			add(finding.OK, "", "the kernel can forward established flows of weir nat; none is running")
		}
		return all
	case n.Running.Offload == nil:
		add(finding.Warn, "start it as this user, with --offload tcx, which ends with the reason if that is not possible", "the running weir nat forwards everything in user space: it lacked privileges at its start, or has --offload none")
		lacks()
		return all
	}
	o := n.Running.Offload
	for i := range o.Interfaces {
		if at := &o.Interfaces[i]; at.Hook == "none" {
			add(finding.Warn, "lead the routes of these clients or destinations through an Ethernet interface, or leave them in user space: weir nat --offload none", "flows over %s stay in user space: %s", at.Name, at.Why)
		}
	}
	if full := o.Refused["full"]; full > 0 {
		add(finding.Warn, "start weir nat with a larger --max-entries (at most 262144 flows are in the kernel)", "%d attempts to hand a flow to the kernel failed: its table of %d is full", full, o.MaxFlows)
	}
	if f := &n.Running.Faults; f.LossForward+f.LossBackward+f.ReorderPercent > 0 || f.SizeLimit+f.TruncateLimit > 0 {
		add(finding.Warn, "in its console: faults loss-forward=0 loss-backward=0 size-limit=0 truncate-limit=0 reorder=0", "faults are on: what they apply to is forwarded in user space")
	}
	if len(all) == 0 {
		add(finding.OK, "", "the kernel forwards %d of %d flows of the running weir nat", o.Flows, n.Running.Entries)
	}
	return all
}
