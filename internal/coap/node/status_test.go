package node

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/coap/exchange"
	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/dtls/engine"
)

// Counters only grow: a worker that does not answer in time, or has ended, counts as it last did.
func TestCountersNeverGoBack(t *testing.T) {
	n, err := Open(Config{Listen: []string{"127.0.0.1:0"}, Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	l := n.listeners[0]
	conn, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(l.engine.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write(message.AppendEmpty(nil, message.Con, 7)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 64)); err != nil {
		t.Fatal(err)
	}
	collect := func() exchange.Counters {
		var s ListenerStatus
		l.collect(&s)
		return s.Exchange
	}
	counters := collect()
	for end := time.Now().Add(20 * time.Second); counters.Pings != 1 && time.Now().Before(end); { // a busy worker counts as it last did
		counters = collect()
	}
	if counters.Pings != 1 {
		t.Fatalf("%+v", counters)
	}
	stuck, free := make(chan struct{}), make(chan struct{})
	worker, ok := l.handlers[0].worker.(*engine.Worker)
	if !ok || !worker.Post(func() { close(stuck); <-free }) {
		t.Fatal("the worker takes no post")
	}
	<-stuck
	if counters := collect(); counters.Pings != 1 {
		t.Errorf("with a worker that does not answer: %+v", counters)
	}
	close(free)
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if counters := collect(); counters.Pings != 1 {
		t.Errorf("with a worker that has ended, after %v: %+v", time.Since(start), counters)
	}
}
