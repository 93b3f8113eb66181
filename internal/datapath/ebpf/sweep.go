package ebpf

import (
	"context"
)

// sweep is written next.
func (d *Datapath) sweep(ctx context.Context) error { <-ctx.Done(); return nil }
