package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/weir-lb/weir/internal/testbed/programs"
)

// Ports of the loads; a path that picks flows by port must know them all.
const (
	iperf2Port = 5001
	iperf3Port = 5201
	floodPort  = 9000
)

const loadIperf3 = "iperf3"

// The loads of small datagrams; the others are TCP streams.
const (
	loadUDP    = "udp"    // from a packet socket: the gateway's interface is handed socket buffers, as by a local program
	loadFrames = "frames" // from the kernel's frame generator: it is handed bare frames, as from a driver
)

func dsrLoads() []*load {
	loads := []*load{
		{name: "iperf2", about: "TCP, iperf version 2 with -w 64K", tools: []string{"iperf"}, server: "iperf2", serve: serveIperf2, run: runIperf2},
		{name: loadIperf3, about: "TCP, iperf3 as it is", tools: []string{"iperf3"}, server: "iperf3", serve: serveIperf3, run: runIperf3},
		{name: loadUDP, about: "UDP of 18 bytes, 1024 flows, from a packet socket: socket buffers, as of a local program", run: runFlood},
		{name: loadFrames, about: "the same from the kernel's frame generator: bare frames, as of a network card", run: runLive},
	}
	for _, l := range loads {
		l.title, l.unit, _ = dsrTitle(l.name)
	}
	return loads
}

func serveIperf2(ctx context.Context, g *grid, p *path, family string) error {
	args := []string{"-s", "-p", strconv.Itoa(iperf2Port), "-B", p.listens(family).String()}
	if family == "ipv6" {
		args = append(args, "-V")
	}
	return g.server(ctx, p, exec.Command("iperf", args...), iperf2Port, family)
}

func runIperf2(ctx context.Context, g *grid, c *cell) (round, error) {
	return g.iperf2(ctx, c, c.path.target(c.family), "-w", "64K")
}

// iperf2 is a run of iperf with those arguments.
func (g *grid) iperf2(ctx context.Context, c *cell, to netip.Addr, more ...string) (round, error) {
	args := append([]string{"-c", to.String(), "-p", strconv.Itoa(iperf2Port), "-t", g.config.seconds(), "-y", "C"}, more...)
	if c.family == "ipv6" {
		args = append(args, "-V")
	}
	out, err := g.client(ctx, c.path, exec.Command("iperf", args...))
	if err != nil {
		return round{}, err
	}
	return parseIperfStreams(out)
}

// parseIperfStreams sums the streams of iperf's comma-separated report. Their sum, whose number is -1, is left out.
func parseIperfStreams(out []byte) (sum round, err error) {
	for line := range bytes.Lines(bytes.TrimSpace(out)) {
		if fields := bytes.Split(line, []byte(",")); len(fields) > 5 && string(fields[5]) == "-1" {
			continue
		}
		stream, err := parseIperf2(line)
		if err != nil {
			return sum, err
		}
		sum.bytes += stream.bytes
		sum.elapsed = max(sum.elapsed, stream.elapsed)
	}
	if sum.bytes == 0 {
		return sum, fmt.Errorf("iperf reported nothing: %q", excerpt(out))
	}
	return sum, nil
}

// parseIperf2 reads iperf's comma-separated report: date, addresses and ports, id, interval, bytes, bits per second. When
// it could not connect it prints none, and still ends well.
func parseIperf2(out []byte) (round, error) {
	line, _, _ := bytes.Cut(bytes.TrimSpace(out), []byte("\n"))
	fields := strings.Split(strings.TrimSpace(string(line)), ",")
	if len(fields) < 9 {
		return round{}, fmt.Errorf("iperf reported nothing: %q", excerpt(out))
	}
	from, to, ok := strings.Cut(fields[6], "-")
	start, err1 := strconv.ParseFloat(from, 64)
	end, err2 := strconv.ParseFloat(to, 64)
	sent, err3 := strconv.ParseUint(fields[7], 10, 64)
	if err := errors.Join(err1, err2, err3); err != nil || !ok || !(end > start) || end > 1e6 {
		return round{}, fmt.Errorf("iperf reported %q", excerpt(line))
	}
	return round{elapsed: seconds(end - start), bytes: sent}, nil
}

func serveIperf3(ctx context.Context, g *grid, p *path, family string) error {
	return g.server(ctx, p, exec.Command("iperf3", "-s", "-p", strconv.Itoa(iperf3Port), "-B", p.listens(family).String()), iperf3Port, family)
}

func runIperf3(ctx context.Context, g *grid, c *cell) (round, error) {
	out, err := g.client(ctx, c.path, exec.Command("iperf3", "-c", c.path.target(c.family).String(), "-p", strconv.Itoa(iperf3Port), "-t", g.config.seconds(), "-J"))
	r, bad := parseIperf3(out)
	if bad == nil {
		return r, nil
	}
	return round{}, errors.Join(err, bad)
}

func parseIperf3(out []byte) (round, error) {
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
		return round{}, fmt.Errorf("report of iperf3: %w: %q", err, excerpt(out))
	}
	if report.Error != "" {
		return round{}, fmt.Errorf("iperf3: %s", report.Error)
	}
	received := report.End.Received
	if !(received.Seconds > 0) || received.Seconds > 1e6 || received.Bytes == 0 {
		return round{}, errors.New("iperf3 reported that nothing arrived")
	}
	return round{elapsed: seconds(received.Seconds), bytes: received.Bytes}, nil
}

func runFlood(ctx context.Context, g *grid, c *cell) (round, error) {
	f, err := newFlood(g, c)
	if err != nil {
		return round{}, err
	}
	return f.run(ctx)
}

// runLive makes the gateway's interface poll while it lasts, as a network card does: a veth loses bare frames otherwise.
func runLive(ctx context.Context, g *grid, c *cell) (r round, err error) {
	f, err := newFlood(g, c)
	if err != nil {
		return r, err
	}
	f.Live = true
	gateway, was := c.path.Lab.Namespace("gateway"), false
	err = gateway.Do(func() (err error) {
		was, err = setGRO("veth0", true)
		return err
	})
	if err != nil {
		return r, err
	}
	r, err = f.run(ctx)
	return r, errors.Join(err, gateway.Do(func() error {
		_, err := setGRO("veth0", was)
		return err
	}))
}

func newFlood(g *grid, c *cell) (*flood, error) {
	client := c.path.Lab.Namespace("zone0")
	index, source, err := client.Interface("veth1")
	if err != nil {
		return nil, err
	}
	_, gateway, err := c.path.Lab.Namespace("gateway").Interface("veth0")
	if err != nil {
		return nil, err
	}
	return &flood{
		Sender: client, Interface: index, SourceMAC: source, GatewayMAC: gateway, Source: clientAddress(c.family), To: c.path.target(c.family),
		Receiver: c.path.Lab.Namespace("zone1"), At: c.path.listens(c.family), Port: floodPort, Flows: 1024, Duration: g.config.Duration,
	}, nil
}

// server starts a TCP server of a path and waits until it listens.
func (g *grid) server(ctx context.Context, p *path, cmd *exec.Cmd, port int, family string) error {
	output := &programs.LastLines{}
	cmd.Stdout, cmd.Stderr = output, output
	if err := g.running.Start(p.Lab.Namespace(p.servers), cmd); err != nil {
		return err
	}
	return until(ctx, nfqReady, func() error {
		if listening(cmd.Process.Pid, port, family == "ipv6") {
			return nil
		}
		return fmt.Errorf("%s does not listen on port %d%s", cmd.Path, port, output.LastOutput())
	})
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

// client runs a program of a path's clients and returns what it printed, also when it failed.
func (g *grid) client(ctx context.Context, p *path, cmd *exec.Cmd) ([]byte, error) {
	bound := max(g.config.Duration, nfqReady) + 30*time.Second // connecting included, on a busy machine; then it counts as stuck
	bounded, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	out, err := p.Output(bounded, p.clients, cmd)
	if bounded.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("%s was stuck for %v", cmd.Args[0], bound)
	}
	return out, err
}

func excerpt(text []byte) []byte { return bytes.TrimSpace(text[:min(len(text), 200)]) }

func seconds(s float64) time.Duration { return time.Duration(math.Round(s * float64(time.Second))) }
