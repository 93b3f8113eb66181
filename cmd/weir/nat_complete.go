package main

import (
	"github.com/weir-lb/weir/internal/cli"
)

// natFamily is weir nat.
func natFamily() cli.Family {
	return cli.Family{Command: newNATCommand, Values: natValues}
}

func natValues() map[string][]string {
	return map[string][]string{
		"--affinity": {"flow", "source"},
	}
}
