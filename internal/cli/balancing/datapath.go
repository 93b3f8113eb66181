package balancing

import (
	"fmt"
	"runtime"

	"github.com/weir-lb/weir/internal/datapath/ebpf"
	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/datapath/nfqueue"
	"github.com/weir-lb/weir/internal/datapath/udpnat"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// Caps returns the capabilities of a data path of --datapath.
func Caps(name string) (lb.Caps, error) {
	switch name {
	case "udp":
		return udpnat.Caps(), nil
	case "ebpf":
		return ebpf.Caps(attach.HookTCX), nil
	case "nfqueue":
		return nfqueue.Caps(), nil
	default:
		return lb.Caps{}, fmt.Errorf("--datapath: no data path %q; write ebpf, nfqueue or udp", name)
	}
}

// OpenUDP opens the user-space data path with a worker for each processor where the configuration does not name a number.
func OpenUDP(config udpnat.Config) (*udpnat.Datapath, error) {
	if config.Workers == 0 {
		config.Workers = runtime.GOMAXPROCS(0)
	}
	// If every P is in a system call, Go's monitor wakes every 20 µs to take one away, which costs a third more processor
	// time per datagram. Spare Ps prevent that; no more threads run than there are workers.
	runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), config.Workers+2))
	return udpnat.Open(config)
}
