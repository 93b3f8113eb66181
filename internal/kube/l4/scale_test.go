package l4

import (
	"testing"

	"github.com/weir-lb/weir/internal/steering/maglev"
)

// Each backend has a hundred slots or more, and each size is one that the load balancer takes.
func TestMaglevSize(t *testing.T) {
	for backends := range 300 {
		size := maglevSize(backends)
		if size == 0 {
			size = maglev.DefaultSize
		}
		if !maglev.IsPrime(size) || size < 100*backends {
			t.Errorf("%d slots for %d backends", size, backends)
		}
	}
}
