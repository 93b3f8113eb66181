package privilege

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// Number is that of a capability that commands, or Pods of tests, need.
func Number(capability string) int {
	switch capability {
	case "CAP_DAC_OVERRIDE":
		return unix.CAP_DAC_OVERRIDE
	case "CAP_NET_BIND_SERVICE":
		return unix.CAP_NET_BIND_SERVICE
	case "CAP_NET_RAW":
		return unix.CAP_NET_RAW
	case "CAP_SYS_ADMIN":
		return unix.CAP_SYS_ADMIN
	case "CAP_DAC_READ_SEARCH":
		return unix.CAP_DAC_READ_SEARCH
	case "CAP_NET_ADMIN":
		return unix.CAP_NET_ADMIN
	case "CAP_BPF":
		return unix.CAP_BPF
	case "CAP_PERFMON":
		return unix.CAP_PERFMON
	}
	panic("no number for " + capability)
}

// effective reads the capabilities of the calling thread, as bits.
func effective() (uint64, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return 0, fmt.Errorf("read the own capabilities: %w", err)
	}
	return uint64(data[1].Effective)<<32 | uint64(data[0].Effective), nil
}

// Check says in one error which capabilities of a command are missing, what for, and how to give them. Nothing is changed
// before it.
func Check(name string) error {
	have, err := effective()
	if err != nil {
		return err
	}
	return missing(name, have)
}

func missing(name string, have uint64) error {
	c, ok := Of(name)
	if !ok {
		return fmt.Errorf("privileges of %q are not known", name)
	}
	var lacking, all []string
	for _, n := range c.Needs {
		all = append(all, n.Capability)
		if have>>Number(n.Capability)&1 == 0 {
			lacking = append(lacking, fmt.Sprintf("%s (to %s)", n.Capability, n.For))
		}
	}
	if lacking == nil {
		return nil
	}
	return fmt.Errorf("%s is missing: %s needs it; run it as root, or give its process %s (systemd: AmbientCapabilities=; docs/privileges.md)",
		strings.Join(lacking, ", "), name, strings.Join(all, " "))
}
