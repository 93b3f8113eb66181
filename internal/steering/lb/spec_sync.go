package lb

import (
	"net/netip"
	"time"
)

// SyncSpec says which balancers have the state of translated flows (mode nat) as well, so that these live on there. All have the same
// services, backends and SNAT addresses, and the same key.
type SyncSpec struct {
	Listen netip.AddrPort `yaml:"listen"` // address and TCP port for connections of the peers, in a network that clients do not reach
	// Peers: where the other balancers listen. Connections come from these addresses.
	Peers []netip.AddrPort `yaml:"peers" bounds:"1 to 8"`
	// KeyFile: file with the key: 64 hex digits, such as from openssl rand -hex 32. Readable by its owner alone.
	KeyFile string `yaml:"key_file" default:"none"`
	KeyEnv  string `yaml:"key_env" default:"none"` // environment variable with it; one of the two is needed
	// HoldOff: after a start, addresses are announced once the peers have sent their state, or have not been reached for so long.
	HoldOff time.Duration `yaml:"hold_off" default:"3s" range:"0s to 5m"`
}

// Sync is a SyncSpec, compiled.
type Sync struct {
	Listen          netip.AddrPort
	Peers           []netip.AddrPort
	KeyFile, KeyEnv string
	HoldOff         time.Duration
}
