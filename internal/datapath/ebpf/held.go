package ebpf

import "context"

type holder struct{}

func (d *Datapath) runHeld(ctx context.Context) error { <-ctx.Done(); return nil }
