package bench

import (
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
)

// packageOf is the Debian package that brings a program.
func packageOf(program string) string {
	switch program {
	case "nft":
		return "nftables"
	case "bird", "birdc":
		return "bird2"
	case "turnserver":
		return "coturn"
	case "iptables", "ip6tables":
		return "iptables"
	case "ip", "bridge":
		return "iproute2"
	case "mount", "unshare":
		return "util-linux"
	case "sysctl":
		return "procps"
	default:
		return program // iperf, iperf3, socat
	}
}

// needTools returns one error for all programs that are missing, with the command that brings them.
func needTools(programs []string) error {
	var missing, packages []string
	for _, program := range programs {
		if _, err := exec.LookPath(program); err == nil || slices.Contains(missing, program) {
			continue
		}
		missing = append(missing, program)
		if name := packageOf(program); !slices.Contains(packages, name) {
			packages = append(packages, name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s; install: apt-get install %s", errNoTool, strings.Join(missing, ", "), strings.Join(packages, " "))
}

var errNoTool = errors.New("not in the PATH")
