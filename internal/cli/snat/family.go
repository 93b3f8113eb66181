package snat

import (
	"github.com/weir-lb/weir/internal/bench/snatlab"
	"github.com/weir-lb/weir/internal/cli"
)

// Family is weir snat.
func Family() cli.Family {
	return cli.Family{Command: newSnatCommand, Values: snatValues}
}

func snatValues() map[string][]string {
	return map[string][]string{
		"--nat":                     snatlab.NATs(),
		"--policy":                  {"keep", "open", "original"},
		"--spread":                  {"exponential", "fixed"},
		"--balance":                 {"even", "random"},
		"weir snat plan --with":     {"files", "conntrack", "vm-flows", "memory"},
		"weir snat simulate --with": {"files", "conntrack", "vm-flows", "memory"},
	}
}
