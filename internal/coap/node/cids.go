package node

import "github.com/weir-lb/weir/internal/dtls/engine"

// newCIDs makes connection ids as Californium does: a byte of node id, the rest random but for the worker's hint. None
// are negotiated when length is 0.
func newCIDs(length int, owner uint32) *engine.CIDs {
	if length == 0 {
		return nil
	}
	return engine.ByteOwnerCIDs(length, owner)
}
