package holder

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/weir-lb/weir/internal/steering/lb"
)

// Fault is why a virtual router cannot run on its interface.
type Fault struct {
	Reason string
	Remedy string // a command, or what to do on this machine
}

// Error is the reason.
func (f *Fault) Error() string { return f.Reason }

func fault(remedy, reason string, args ...any) error {
	return &Fault{Reason: fmt.Sprintf(reason, args...), Remedy: remedy}
}

// Ready reports whether the virtual router of a family can run on its interface as it is now, in the network namespace of the calling
// thread. It changes and sends nothing. The error is a *Fault, or says that the interface could not be read.
func Ready(v *lb.VRRP, is6 bool) error {
	isOwner, virtual := v.Priority == owner, v.Addresses
	if isOwner {
		virtual = nil
	}
	_, present, err := inspect(v.Interface, is6, virtual)
	if err != nil || isOwner {
		return err
	}
	for _, h := range present {
		if !h.own && slices.Contains(v.Addresses, h.address) {
			return occupied(v.Interface, h.address)
		}
	}
	return nil
}

// occupied is the fault of an address that another program has put on the interface: it would answer here at any time.
func occupied(device string, address netip.Addr) error {
	remedy := fmt.Sprintf("ip address del %s dev %s", netip.PrefixFrom(address, address.BitLen()), device)
	return fault(remedy, "%s is on interface %s already: remove it there (%s), or write priority: 255 if this machine owns it", address, device, remedy)
}
