package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/client"
	"github.com/weir-lb/weir/internal/control/admin"
)

// Which services have backends, and taking one of these out of service.
func Example() {
	address, stop := balancer() // "unix:/run/weir/lb.sock"
	defer stop()
	ctx := context.Background()

	lb := client.New(address, "", "lb")
	status, err := lb.LBStatus(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, service := range status.Services {
		fmt.Println(service.Name, "is", service.State)
		for _, backend := range service.Backends {
			fmt.Printf("  %s %s gets %.0f %% of new flows\n", backend.Name, backend.Address, 100*backend.Share)
		}
	}
	if _, err := lb.Drain(ctx, "coaps", "a"); err != nil {
		log.Fatal(err)
	}
	_, err = lb.Drain(ctx, "coaps", "x")
	fmt.Println(client.StatusOf(err), err)

	// Output:
	// coaps is up
	//   a 192.0.2.1 gets 50 % of new flows
	//   b 192.0.2.2 gets 50 % of new flows
	// 404 unknown target: service "coaps" has no backend "x"
}

// Counting flows by backend, without a list in memory.
func ExampleClient_EachFlow() {
	address, stop := balancer()
	defer stop()

	flows := map[string]int{}
	more, err := client.New(address, "").EachFlow(context.Background(), client.FlowQuery{Service: "coaps", Limit: 100}, func(f *v1.Flow) bool {
		flows[f.Backend]++
		return true
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(flows, more)

	// Output:
	// map[a:2 b:1] false
}

// The first dropped packet of a service, with its reason.
func ExampleClient_Trace() {
	address, stop := balancer()
	defer stop()

	err := client.New(address, "").Trace(context.Background(), client.TraceQuery{Service: "coaps"}, func(line *v1.TraceLine) bool {
		packet := line.Packet
		if packet == nil || packet.Action != "drop" {
			return true
		}
		fmt.Println(packet.Source, packet.Reason)
		return false
	})
	if err != nil {
		log.Fatal(err)
	}

	// Output:
	// 198.51.100.7:40001 no_backend
}

// balancer serves an admin API with one service and three flows.
func balancer() (address string, stop func()) {
	directory, err := os.MkdirTemp("", "weir")
	if err != nil {
		log.Fatal(err)
	}
	return serve(directory, admin.Config{Part: "lb", Status: func() any { return status() }, Flows: threeFlows, Override: override, Trace: twoPackets})
}

// serve serves an admin API at a socket in a directory, which stop removes.
func serve(directory string, api admin.Config) (address string, stop func()) {
	api.Address, api.Log = "unix:"+filepath.Join(directory, "lb.sock"), slog.New(slog.DiscardHandler)
	server, err := admin.Open(api)
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	return server.Address(), func() {
		cancel()
		if err := errors.Join(<-ended, os.RemoveAll(directory)); err != nil {
			log.Fatal(err)
		}
	}
}

func status() v1.LBStatus {
	return v1.LBStatus{BalancerStatus: v1.BalancerStatus{Generation: 1, Datapath: "nfqueue", Services: []v1.ServiceStatus{{
		Name: "coaps", State: "up", Backends: []v1.BackendStatus{{Name: "a", Address: "192.0.2.1", Share: 0.5}, {Name: "b", Address: "192.0.2.2", Share: 0.5}},
	}}}}
}

func threeFlows(yield func(v1.Flow) bool) {
	for i, backend := range []string{"a", "b", "a"} {
		if !yield(v1.Flow{Protocol: "udp", Client: fmt.Sprintf("198.51.100.7:%d", 40000+i), Service: "coaps", Backend: backend, Expires: 30}) {
			return
		}
	}
}

func override(_, service, backend, _ string) error {
	if backend != "a" && backend != "b" {
		return fmt.Errorf("%w: service %q has no backend %q", admin.ErrUnknownTarget, service, backend)
	}
	return nil
}
