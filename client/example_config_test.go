package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"path/filepath"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/client"
	"github.com/weir-lb/weir/internal/cli/balancing"
	"github.com/weir-lb/weir/internal/control"
	"github.com/weir-lb/weir/internal/control/admin"
	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// Setting the weight of a backend. Its other keys stay.
func ExampleClient_Merge() {
	address, stop := configured() // "unix:/run/weir/lb.sock"
	defer stop()
	ctx := context.Background()

	balancer := client.New(address, "", "lb")
	path := client.ConfigPath("services", "echo", "backends", "a")
	for range 2 { // the second time changes nothing
		answer, err := balancer.Merge(ctx, path, map[string]any{"weight": 5})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(answer.Changed, answer.Unsaved)
		for _, d := range answer.Differences {
			fmt.Println(d.Path, d.Old, "->", d.New)
		}
	}

	// Output:
	// true true
	// /services/echo/backends/a/weight <nil> -> 5
	// false true
}

// Adding a backend, and saving the configuration to its file, whose comments stay.
func ExampleClient_Add() {
	address, stop := configured()
	defer stop()
	ctx := context.Background()

	balancer := client.New(address, "", "lb")
	path := client.ConfigPath("services", "echo", "backends", "c")
	if _, err := balancer.Add(ctx, path, map[string]any{"address": "10.0.0.3", "port": 5784}); err != nil {
		log.Fatal(err)
	}
	_, err := balancer.Add(ctx, path, map[string]any{"address": "10.0.0.4", "port": 5784}) // another one of that name
	fmt.Println(client.StatusOf(err) == http.StatusConflict, err)

	answer, err := balancer.SaveConfig(ctx, "")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.Written, answer.Unsaved)

	// Output:
	// true /services/echo/backends/c: the object exists, and is another one; use set to change it
	// true false
}

// A batch is made as a whole or not at all: here one backend is replaced by another.
func ExampleClient_Change() {
	address, stop := configured()
	defer stop()
	ctx := context.Background()

	balancer := client.New(address, "", "lb")
	answer, err := balancer.Change(ctx, v1.ConfigRequest{Changes: []v1.ConfigChange{
		{Op: "add", Path: "/services/echo/backends/c", Value: json.RawMessage(`{"address": "10.0.0.3", "port": 5784}`)},
		{Op: "remove", Path: "/services/echo/backends/b"},
	}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("configuration", answer.Generation)

	_, err = balancer.Change(ctx, v1.ConfigRequest{Changes: []v1.ConfigChange{
		{Op: "remove", Path: "/services/echo/backends/a"},
		{Op: "merge", Path: "/services/echo/backends/c", Value: json.RawMessage(`{"weight": -1}`)}, // which is invalid
	}})
	fmt.Println(client.StatusOf(err) == http.StatusBadRequest)
	now, err := balancer.Config(ctx, "/services/echo/backends/a", nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("configuration", now.Generation, "has it still")

	// Output:
	// configuration 2
	// true
	// configuration 2 has it still
}

// What a change would do: it is checked and compiled, and nothing changes.
func ExampleClient_Change_dryRun() {
	address, stop := configured()
	defer stop()

	answer, err := client.New(address, "", "lb").Change(context.Background(), v1.ConfigRequest{DryRun: true, Changes: []v1.ConfigChange{
		{Op: "set", Path: "/services/echo/backends/a/weight", Value: json.RawMessage("0")},
	}})
	if err != nil {
		log.Fatal(err)
	}
	for _, service := range answer.Services {
		for _, backend := range service.Backends {
			fmt.Printf("%s would get %.0f %% of new flows\n", backend.Name, 100*backend.Share)
		}
	}
	fmt.Println("configuration", answer.Generation)

	// Output:
	// a would get 0 % of new flows
	// b would get 100 % of new flows
	// configuration 1
}

// Reading, changing and writing, while others write too: the change is made only to what was read, else it is read again.
func ExampleClient_Change_concurrently() {
	address, stop := configured()
	defer stop()
	ctx := context.Background()

	balancer := client.New(address, "", "lb")
	path := client.ConfigPath("services", "echo", "backends", "a")
	for attempt := 1; ; attempt++ {
		var backend struct {
			Weight int `json:"weight"`
		}
		now, err := balancer.Config(ctx, path, &backend)
		if err != nil {
			log.Fatal(err)
		}
		if attempt == 1 { // somebody else is faster, once
			if _, err := balancer.Merge(ctx, path, map[string]any{"weight": 20}); err != nil {
				log.Fatal(err)
			}
		}
		value, err := json.Marshal(map[string]any{"weight": backend.Weight + 1})
		if err != nil {
			log.Fatal(err)
		}
		answer, err := balancer.Change(ctx, v1.ConfigRequest{If: now.ETag, Changes: []v1.ConfigChange{{Op: "merge", Path: path, Value: value}}})
		var refused *client.Error
		if errors.As(err, &refused) && refused.Status == http.StatusPreconditionFailed {
			fmt.Println("configuration", refused.Generation, "came first")
			continue
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(answer.Differences[0].Path, answer.Differences[0].New)
		break
	}

	// Output:
	// configuration 2 came first
	// /services/echo/backends/a/weight 21
}

// Following the configuration: who has changed what.
func ExampleClient_WatchConfig() {
	address, stop := configured()
	defer stop()
	ctx := context.Background()

	balancer := client.New(address, "", "lb")
	changes := []v1.ConfigChange{
		{Op: "add", Path: "/services/echo/vips/udp:192.0.2.9:5784"},
		{Op: "remove", Path: "/services/echo/backends/b"},
	}
	for _, change := range changes {
		if _, err := balancer.Change(ctx, v1.ConfigRequest{Changes: []v1.ConfigChange{change}}); err != nil {
			log.Fatal(err)
		}
	}
	err := balancer.WatchConfig(ctx, 1, func(event *v1.ConfigEvent) bool { // what came after configuration 1
		fmt.Println("configuration", event.Generation, event.Action, event.Differences[0].Path)
		return event.Generation < 3
	})
	if err != nil {
		log.Fatal(err)
	}

	// Output:
	// configuration 2 change /services/echo/vips/udp:192.0.2.9:5784
	// configuration 3 change /services/echo/backends/b
}

const echoFile = `hash_key: 00112233445566778899aabbccddeeff
maglev_size: 1009
services:
- name: echo # what clients use
  vips: [{address: 192.0.2.1, protocol: udp, port: 5784}]
  backends:
  - {name: a, address: 10.0.0.1, port: 5784}
  - {name: b, address: 10.0.0.2, port: 5784}
`

// configured serves the admin API of a balancer with a configuration file and a data path without packets.
func configured() (address string, stop func()) {
	directory, err := os.MkdirTemp("", "weir")
	if err != nil {
		log.Fatal(err)
	}
	file := filepath.Join(directory, "weir.yaml")
	if err := os.WriteFile(file, []byte(echoFile), 0o600); err != nil {
		log.Fatal(err)
	}
	loop := control.New(noPackets{}, control.Options{})
	if _, err := loop.LoadFile(config.NewFile(file)); err != nil {
		log.Fatal(err)
	}
	return serve(directory, admin.Config{Part: "lb", Status: func() any { return loop.Status() }, Configuration: balancing.Configuration(loop)})
}

// noPackets is a data path that carries nothing.
type noPackets struct{}

func (noPackets) Caps() lb.Caps             { return lb.AllCaps() }
func (noPackets) Apply(*lb.Snapshot) error  { return nil }
func (noPackets) Run(context.Context) error { return nil }
func (noPackets) Close() error              { return nil }
