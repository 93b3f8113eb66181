package client

import "context"

// Bench runs one load until its requests are answered, its duration is over or ctx is cancelled (no error then: the result
// tells how far it came). live, if not nil, is called about once a second from one goroutine and must not block.
// The first client makes one verified request before the others start; an error of it ends the load.
func Bench(ctx context.Context, cfg BenchConfig, live func(Snapshot)) (BenchResult, error) {
	return BenchResult{}, nil
}
