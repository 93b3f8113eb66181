package gateway

import (
	"net/netip"

	"github.com/weir-lb/weir/internal/turn/allocation"
)

// tcpRelay is the RFC 6062 side of an allocation.
type tcpRelay struct{}

// openTCP is Relays.Open of an allocation that relays TCP.
func (w *worker) openTCP(c *client, want allocation.RelayRequest) ([2]netip.AddrPort, error) {
	return [2]netip.AddrPort{}, allocation.ErrTransport
}

// closeTCP is Relays.Close of one.
func (w *worker) closeTCP(c *client) {}

// connectTCP is Relays.Connect, disconnectTCP Relays.Disconnect.
func (w *worker) connectTCP(c *client, id uint32, peer netip.AddrPort) {}
func (w *worker) disconnectTCP(c *client, id uint32)                   {}
