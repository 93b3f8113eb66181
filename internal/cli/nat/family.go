package nat

import (
	"github.com/weir-lb/weir/internal/cli"
)

// Family is weir nat.
func Family() cli.Family {
	return cli.Family{Command: newNATCommand, Values: natValues}
}

func natValues() map[string][]string {
	return map[string][]string{
		"--affinity":         {"flow", "source"},
		"weir nat --offload": {offloadAuto, offloadTCX, offloadNone},
	}
}
