package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/weir-lb/weir/internal/testbed/programs"
)

// dsrLoad is one way to load a road: what serves it in the backend's namespace, and what runs in the client's.
type dsrLoad struct {
	name  string
	about string
	tools []string
	serve func(ctx context.Context, b *dsrBench, road *dsrRoad, family string) error
	run   func(ctx context.Context, b *dsrBench, road *dsrRoad, family string) (dsrRun, error)
}

// Ports of the loads; a road that picks flows by port must know them all.
const (
	iperf2Port = 5001
	iperf3Port = 5201
	floodPort  = 9000
)

func dsrLoads() []dsrLoad {
	return []dsrLoad{
		{name: "iperf2", about: "TCP, iperf version 2 with -w 64K", tools: []string{"iperf"}, serve: serveIperf2, run: runIperf2},
		{name: "iperf3", about: "TCP, iperf3 as it is", tools: []string{"iperf3"}, serve: serveIperf3, run: runIperf3},
		{name: loadUDP, about: "UDP of 18 bytes, 1024 flows, from a packet socket: socket buffers, as of a local program", serve: serveFlood, run: runFlood},
		{name: loadFrames, about: "the same from the kernel's frame generator: bare frames, as of a network card", serve: serveFlood, run: runLive},
	}
}

// The loads of small datagrams; the others are TCP streams.
const (
	loadUDP    = "udp"    // from a packet socket: the gateway's interface is handed socket buffers, as by a local program
	loadFrames = "frames" // from the kernel's frame generator: it is handed bare frames, as from a driver
)

func datagrams(load string) bool {
	return load == loadUDP || load == loadFrames || strings.HasPrefix(load, livePrefix)
}

// DSRLoads names the loads in the order they run.
func DSRLoads() []string {
	var names []string
	for _, load := range dsrLoads() {
		names = append(names, load.name)
	}
	return names
}

// DescribeDSRLoads is DSRLoads, each followed by a tab and what it is.
func DescribeDSRLoads() []string {
	var lines []string
	for _, load := range dsrLoads() {
		lines = append(lines, load.name+"\t"+load.about)
	}
	return lines
}

// bound is how long a load may take before it counts as stuck, connecting included.
func (c *DSRConfig) bound() time.Duration { return c.Duration + 30*time.Second }

func (c *DSRConfig) seconds() string { return strconv.Itoa(int(c.Duration / time.Second)) }

func serveIperf2(ctx context.Context, b *dsrBench, road *dsrRoad, family string) error {
	args := []string{"-s", "-p", strconv.Itoa(iperf2Port), "-B", road.server(family).String()}
	if family == "ipv6" {
		args = append(args, "-V")
	}
	return b.server(ctx, road, exec.Command("iperf", args...), iperf2Port)
}

func runIperf2(ctx context.Context, b *dsrBench, road *dsrRoad, family string) (dsrRun, error) {
	args := []string{"-c", road.target(family).String(), "-p", strconv.Itoa(iperf2Port), "-w", "64K", "-t", b.config.seconds(), "-y", "C"}
	if family == "ipv6" {
		args = append(args, "-V")
	}
	out, err := b.client(ctx, road, "iperf", args...)
	if err != nil {
		return dsrRun{}, err
	}
	return parseIperf2(out)
}

// parseIperf2 reads iperf's comma-separated report: date, addresses and ports, id, interval, bytes, bits per second. When
// it could not connect it prints none, and still ends well.
func parseIperf2(out []byte) (dsrRun, error) {
	line, _, _ := bytes.Cut(bytes.TrimSpace(out), []byte("\n"))
	fields := strings.Split(strings.TrimSpace(string(line)), ",")
	if len(fields) < 9 {
		return dsrRun{}, fmt.Errorf("iperf reported nothing: %q", excerpt(out))
	}
	from, to, ok := strings.Cut(fields[6], "-")
	start, err1 := strconv.ParseFloat(from, 64)
	end, err2 := strconv.ParseFloat(to, 64)
	sent, err3 := strconv.ParseUint(fields[7], 10, 64)
	if err := errors.Join(err1, err2, err3); err != nil || !ok || !(end > start) || end > 1e6 {
		return dsrRun{}, fmt.Errorf("iperf reported %q", excerpt(line))
	}
	return dsrRun{elapsed: seconds(end - start), bytes: sent}, nil
}

func serveIperf3(ctx context.Context, b *dsrBench, road *dsrRoad, family string) error {
	return b.server(ctx, road, exec.Command("iperf3", "-s", "-p", strconv.Itoa(iperf3Port), "-B", road.server(family).String()), iperf3Port)
}

func runIperf3(ctx context.Context, b *dsrBench, road *dsrRoad, family string) (dsrRun, error) {
	out, err := b.client(ctx, road, "iperf3", "-c", road.target(family).String(), "-p", strconv.Itoa(iperf3Port), "-t", b.config.seconds(), "-J")
	run, bad := parseIperf3(out)
	if bad == nil {
		return run, nil
	}
	return dsrRun{}, errors.Join(err, bad)
}

func parseIperf3(out []byte) (dsrRun, error) {
	var report struct {
		Error string `json:"error"`
		End   struct {
			Received struct {
				Seconds float64 `json:"seconds"`
				Bytes   uint64  `json:"bytes"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	if err := json.Unmarshal(out, &report); err != nil {
		return dsrRun{}, fmt.Errorf("report of iperf3: %w: %q", err, excerpt(out))
	}
	if report.Error != "" {
		return dsrRun{}, fmt.Errorf("iperf3: %s", report.Error)
	}
	received := report.End.Received
	if !(received.Seconds > 0) || received.Seconds > 1e6 || received.Bytes == 0 {
		return dsrRun{}, errors.New("iperf3 reported that nothing arrived")
	}
	return dsrRun{elapsed: seconds(received.Seconds), bytes: received.Bytes}, nil
}

// serveFlood needs no process: runFlood opens its own socket at the backend.
func serveFlood(context.Context, *dsrBench, *dsrRoad, string) error { return nil }

func runFlood(ctx context.Context, b *dsrBench, road *dsrRoad, family string) (dsrRun, error) {
	f, err := newFlood(b, road, family)
	if err != nil {
		return dsrRun{}, err
	}
	return f.run(ctx)
}

// runLive makes the gateway's interface poll while it lasts, as a network card does: a veth loses bare frames otherwise.
func runLive(ctx context.Context, b *dsrBench, road *dsrRoad, family string) (run dsrRun, err error) {
	f, err := newFlood(b, road, family)
	if err != nil {
		return dsrRun{}, err
	}
	f.Live = true
	gateway, was := road.lab.Namespace("gateway"), false
	err = gateway.Do(func() (err error) {
		was, err = setGRO("veth0", true)
		return err
	})
	if err != nil {
		return dsrRun{}, err
	}
	run, err = f.run(ctx)
	return run, errors.Join(err, gateway.Do(func() error {
		_, err := setGRO("veth0", was)
		return err
	}))
}

func newFlood(b *dsrBench, road *dsrRoad, family string) (*flood, error) {
	client := road.lab.Namespace("zone0")
	index, source, err := client.Interface("veth1")
	if err != nil {
		return nil, err
	}
	_, gateway, err := road.lab.Namespace("gateway").Interface("veth0")
	if err != nil {
		return nil, err
	}
	return &flood{
		Sender: client, Interface: index, SourceMAC: source, GatewayMAC: gateway, Source: clientAddress(family), To: road.target(family),
		Receiver: road.lab.Namespace("zone1"), At: road.server(family), Port: floodPort, Flows: 1024, Duration: b.config.Duration,
	}, nil
}

// server starts a program at the backend and waits until it listens.
func (b *dsrBench) server(ctx context.Context, road *dsrRoad, cmd *exec.Cmd, port int) error {
	said := &programs.LastLines{}
	cmd.Stdout, cmd.Stderr = said, said
	if err := b.running.Start(road.lab.Namespace("zone1"), cmd); err != nil {
		return err
	}
	for range 500 {
		if listening(cmd.Process.Pid, port, strings.Contains(strings.Join(cmd.Args, " "), ":")) {
			return nil
		}
		if err := sleep(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s does not listen on port %d%s", cmd.Path, port, said.Said())
}

// listening looks for a listening TCP socket in the namespace of a process.
func listening(pid, port int, six bool) bool {
	file := "tcp"
	if six {
		file = "tcp6"
	}
	table, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, file))
	if err != nil {
		return false
	}
	const listen = "0A"
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line)
		if len(fields) > 3 && strings.HasSuffix(fields[1], fmt.Sprintf(":%04X", port)) && fields[3] == listen {
			return true
		}
	}
	return false
}

// client runs a program in the client's namespace and returns what it printed.
func (b *dsrBench) client(ctx context.Context, road *dsrRoad, program string, args ...string) ([]byte, error) {
	bounded, cancel := context.WithTimeout(ctx, b.config.bound())
	defer cancel()
	var out bytes.Buffer
	said := &programs.LastLines{}
	cmd := exec.CommandContext(bounded, program, args...)
	cmd.Stdout, cmd.Stderr = &out, said
	switch err := b.running.Run(road.lab.Namespace("zone0"), cmd); {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case bounded.Err() != nil:
		return nil, fmt.Errorf("%s was stuck for %v%s", program, b.config.bound(), said.Said())
	case err != nil:
		return out.Bytes(), fmt.Errorf("%s: %w%s", program, err, said.Said())
	}
	return out.Bytes(), nil
}

func excerpt(text []byte) []byte { return bytes.TrimSpace(text[:min(len(text), 200)]) }

func seconds(s float64) time.Duration { return time.Duration(math.Round(s * float64(time.Second))) }
