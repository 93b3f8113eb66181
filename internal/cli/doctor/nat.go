package doctor

import (
	"context"
	"errors"
	"os"
	"syscall"

	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/datapath/doctor"
	"github.com/weir-lb/weir/internal/datapath/kernelnat"
	"github.com/weir-lb/weir/internal/finding"
	"github.com/weir-lb/weir/internal/privilege"
)

// natFindings are about the offload of the weir nat that runs, or of one that this user would start. named: one must run.
func natFindings(ctx context.Context, running *cli.ClientFlags, named bool) ([]finding.Finding, error) {
	at := doctor.NATOffload{Privilege: privilege.Check(privilege.NATOffload)}
	if at.Privilege == nil {
		at.Kernel = tryOffload()
	}
	c, err := running.Client()
	if err != nil {
		return nil, err
	}
	status, err := c.NATStatus(ctx)
	switch {
	case err == nil:
		at.Running = &status.NAT
	case !named && (errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)): // none runs
	default:
		return nil, err
	}
	return at.Findings(), nil
}

// tryOffload loads the program, attaches it nowhere, and removes it.
func tryOffload() error {
	table, err := kernelnat.Open(kernelnat.Config{MaxFlows: 1})
	if err != nil {
		return err
	}
	return table.Close()
}
