package nat

import (
	"fmt"
	"log/slog"

	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/balancing"
	"github.com/weir-lb/weir/internal/datapath/kernelnat"
	"github.com/weir-lb/weir/internal/datapath/udpnat"
	"github.com/weir-lb/weir/internal/privilege"
)

// The values of --offload.
const (
	offloadAuto = "auto"
	offloadTCX  = "tcx"
	offloadNone = "none"
)

// openDatapath opens the data path with what forwards in the kernel. The caller calls closeAll.
func openDatapath(config udpnat.Config, offload string, log *slog.Logger) (datapath *udpnat.Datapath, closeAll func(), err error) {
	if config.Offload, err = openOffload(offload, config.MaxEntries, log); err != nil {
		return nil, nil, err
	}
	closeOffload := func() {
		if config.Offload == nil {
			return
		}
		if err := config.Offload.Close(); err != nil {
			log.Error("end the forwarding in the kernel", "error", err)
		}
	}
	if datapath, err = balancing.OpenUDP(config); err != nil {
		closeOffload()
		return nil, nil, cli.UsageError(err)
	}
	return datapath, func() {
		_ = datapath.Close() // it has ended, and has no more to say
		closeOffload()
	}, nil
}

// openOffload opens what forwards established flows in the kernel. It returns nil where user space forwards everything: with
// none, and with auto where the process may not or the kernel cannot.
func openOffload(mode string, maxEntries int, log *slog.Logger) (*kernelnat.Table, error) {
	if mode == offloadNone {
		return nil, nil
	}
	err := privilege.Check(privilege.NATOffload)
	if err != nil && mode == offloadAuto {
		return nil, nil // the usual way to run it
	}
	var table *kernelnat.Table
	if err == nil {
		table, err = kernelnat.Open(kernelnat.Config{MaxFlows: min(maxEntries, kernelnat.MaxFlows), Log: log.With("scope", "offload")})
	}
	if err != nil && mode == offloadAuto {
		log.Warn("all datagrams are forwarded in user space", "because", err)
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("--offload %s: %w", mode, err)
	}
	return table, nil
}
