package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/programs"
)

// weirRoad is Weir's kernel data path in one mode on one hook of both interfaces of the gateway.
// Mode "cid" is l2dsr by connection ids.
func weirRoad(mode, hook, about string) dsrRoad {
	road := dsrRoad{name: "weir-" + mode + "-" + hook, about: about, vip: true, vipAtServer: mode != "nat", cid: mode == modeCID}
	if mode == "l3dsr" {
		road.prepare = widen
	}
	road.setup = func(ctx context.Context, b *dsrBench, road *dsrRoad) error {
		config := filepath.Join(b.dir, road.name+".yaml")
		if err := os.WriteFile(config, []byte(weirConfig(mode)), 0o600); err != nil {
			return err
		}
		pins := programs.PinPath(road.name)
		road.undo = func() error {
			return programs.StopWeir(ctx, b.running, b.config.Binary, road.lab.Namespace("gateway"), pins)
		}
		run := []string{"lb", "run", "-c", config, "--datapath", "ebpf", "--hook", hook, "--interface", "veth0,veth2", "--pin-path", pins}
		if err := b.daemon(ctx, road, "gateway", run...); err != nil {
			return err
		}
		if mode != "l3dsr" {
			return nil
		}
		return b.daemon(ctx, road, "zone1", "lb", "decap", "--hook", hook, "--interface", "veth3", "--from", "10.2.0.1,2001:db8::2:1")
	}
	return road
}

const modeCID = "cid"

// widen makes room for the outer header of L3-DSR on the way to the backend, as a network that uses it does.
func widen(t *netlab.Topology) {
	for i := range t.Links {
		if t.Links[i].A.Name == "veth2" {
			t.Links[i].MTU = 1600
		}
	}
}

// weirConfig is one service of that mode for all loads and both families.
func weirConfig(mode string) string {
	var b strings.Builder
	steered, nodes := "", ""
	if mode == modeCID {
		mode, nodes = "l2dsr", fmt.Sprintf(", nodes: [%d]", floodOwner)
		steered = fmt.Sprintf("  cid: {protocols: [dtls12], layouts: [{length: %d, owner: {offset: 0, bits: 8}}]}\n", floodCID)
	}
	fmt.Fprintf(&b, "hash_key: 5d0f2c4a6b8e1937c5d0f2c4a6b8e193\nservices:\n- name: bench\n  mode: %s\n%s  vips:\n", mode, steered)
	for _, family := range DSRFamilies() {
		for _, p := range dsrPorts() {
			if steered != "" && p.protocol != "udp" {
				continue
			}
			fmt.Fprintf(&b, "  - {address: %q, protocol: %s, port: %d}\n", vipAddress(family), p.protocol, p.port)
		}
	}
	fmt.Fprintf(&b, "  backends:\n  - {name: zone1, address: %q, address2: %q%s}\n", serverAddress("ipv4"), serverAddress("ipv6"), nodes)
	return b.String()
}

// daemon starts our own binary in a namespace of the road and waits until it is at work.
func (b *dsrBench) daemon(ctx context.Context, road *dsrRoad, namespace string, args ...string) error {
	d, err := programs.StartDaemon(ctx, b.running, road.lab.Namespace(namespace), b.config.Binary, b.dir, road.name+"-"+namespace, args...)
	if d != nil {
		road.daemons = append(road.daemons, d)
	}
	if err != nil {
		return err
	}
	return d.Ready(ctx)
}
