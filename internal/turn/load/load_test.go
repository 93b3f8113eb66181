package load_test

import (
	"context"
	"math"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
	"github.com/weir-lb/weir/internal/turn/load"
	"github.com/weir-lb/weir/internal/turn/load/loadtest"
)

// coturn runs a TURN server of another make on 127.0.0.1 until the test ends.
func coturn(t *testing.T) netip.AddrPort {
	t.Helper()
	netlabtest.Tools(t, "turnserver")
	at := netlabtest.UDPAddress(t)
	dir := t.TempDir()
	cmd := exec.Command("turnserver", "-n", "--listening-ip="+at.Addr().String(), "--listening-port="+strconv.Itoa(int(at.Port())),
		"--relay-ip=127.0.0.1", "--lt-cred-mech", "--user=user1:passwd1", "--realm=test", "--allow-loopback-peers", "--no-cli", "--no-tls",
		"--no-dtls", "--no-tcp-relay", "--no-rfc5780", "--log-file=stdout", "--simple-log",
		"--pidfile="+filepath.Join(dir, "pid"), "--userdb="+filepath.Join(dir, "db"))
	var output strings.Builder
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(output.String())
		}
	})
	return at
}

func open(t *testing.T, config load.Config) *load.Load {
	t.Helper()
	config.Timeout = 30 * time.Second
	l, err := load.Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func run(t *testing.T, l *load.Load, direction load.Direction) *load.Report {
	t.Helper()
	report, err := l.Run(t.Context(), load.Phase{Rate: 2000, Count: 400, Direction: direction})
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Problems) > 0 || report.Halved {
		t.Errorf("problems %v, latency halved %v", report.Problems, report.Halved)
	}
	return report
}

// whole holds a flow of an idle loopback to what must be true of it, whatever the machine does meanwhile.
func whole(t *testing.T, flow load.Flow, clients, size int) {
	t.Helper()
	sum := flow.Sum
	if len(flow.Connections) != clients || sum.Sent == 0 || sum.Received == 0 || sum.Lost != sum.Sent-sum.Received {
		t.Fatalf("%d connections; sum %+v", len(flow.Connections), sum)
	}
	if sum.Damaged != 0 || sum.Duplicates != 0 || sum.Bytes != sum.Received*uint64(size) || sum.Latency.Count != sum.Received || flow.Latency.Count() != sum.Received {
		t.Errorf("sum %+v, %d latencies", sum, flow.Latency.Count())
	}
	arrived, before := 0.0, 0.0
	for _, s := range flow.Samples {
		arrived += s.Rate * (s.At - before)
		before = s.At
		if s.Max < s.P99 || s.P99 < s.P50 {
			t.Errorf("sample %+v", s)
		}
	}
	if math.Abs(arrived-float64(sum.Received)) > 0.5 {
		t.Errorf("%v datagrams in samples %+v, %d received", arrived, flow.Samples, sum.Received)
	}
	if sum.Latency.Min < 0 || sum.Latency.Mean < sum.Latency.Min || sum.Latency.Max < sum.Latency.Mean {
		t.Errorf("latency %+v", sum.Latency)
	}
	for i, c := range flow.Connections {
		if c.ID != i || c.Sent == 0 || !c.Client.IsValid() {
			t.Errorf("connection %d: %+v", i, c)
		}
	}
}

func TestPlainUDPEachWay(t *testing.T) {
	const clients, size = 3, 100
	l := open(t, load.Config{Clients: clients, Size: size, Burst: 4})
	if l.Relays() != nil {
		t.Errorf("relays %v of plain UDP", l.Relays())
	}
	up := run(t, l, load.Up)
	whole(t, up.Up, clients, size)
	if len(up.Down.Connections) != 0 {
		t.Errorf("down %+v, nothing went there", up.Down)
	}
	down := run(t, l, load.Down)
	whole(t, down.Down, clients, size)
	both := run(t, l, load.Both)
	whole(t, both.Up, clients, size)
	whole(t, both.Down, clients, size)
	echo := run(t, l, load.Echo)
	whole(t, echo.Up, clients, size)
	whole(t, echo.Down, clients, size)
	if there, back := echo.Up.Sum.Latency.Min, echo.Down.Sum.Latency.Min; back < there {
		t.Errorf("there and back takes %v, there alone %v", back, there)
	}
}

// holdBack is a relay that holds datagrams back, from the moment on when holding is set until it is released.
func holdBack(t *testing.T, to netip.AddrPort, holding *atomic.Bool) (at netip.AddrPort, held chan struct{}, release chan bool) {
	t.Helper()
	in, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	held, release = make(chan struct{}, 1<<16), make(chan bool)
	packets := make(chan []byte, 1<<16)
	go func() {
		for {
			buffer := make([]byte, 2048)
			n, _, err := in.ReadFromUDPAddrPort(buffer)
			if err != nil {
				return
			}
			if !holding.Load() {
				_, _ = in.WriteToUDPAddrPort(buffer[:n], to)
				continue
			}
			packets <- buffer[:n]
			held <- struct{}{}
		}
	}()
	go func() {
		for range release {
			for len(packets) > 0 {
				_, _ = in.WriteToUDPAddrPort(<-packets, to)
			}
			release <- true
		}
	}()
	return in.LocalAddr().(*net.UDPAddr).AddrPort(), held, release
}

// What arrives after a phase was over is counted as late in the next one; with a longer silence it is not lost.
func TestLateDatagrams(t *testing.T) {
	sink := netlabtest.UDPAddress(t)
	var holding atomic.Bool
	at, held, release := holdBack(t, sink, &holding)
	const count = 20
	l, err := load.Open(t.Context(), load.Config{Sink: sink, To: []netip.AddrPort{at}, Size: 100, Burst: 1, NoSegment: true})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	holding.Store(true)
	phase := load.Phase{Rate: 10000, Duration: time.Minute, Count: count}
	report, err := l.Run(t.Context(), phase)
	if err != nil || report.Up.Sum.Lost != count {
		t.Fatalf("%+v, %v", report, err)
	}
	release <- true
	<-release
	phase.Silence = 30 * time.Second
	done := make(chan error)
	go func() {
		report, err = l.Run(t.Context(), phase)
		done <- err
	}()
	for range 2 * count {
		<-held
	}
	time.Sleep(2 * load.DefaultSilence) // nothing is to be received for longer than the default
	release <- true
	<-release
	if err := <-done; err != nil || report.Up.Sum.Lost != 0 || report.Late != count {
		t.Errorf("%d lost, %d late, %v", report.Up.Sum.Lost, report.Late, err)
	}
}

func TestChannelDataThroughCoturn(t *testing.T) {
	at := coturn(t)
	t.Run("udp", func(t *testing.T) { channelDataThrough(t, at, false, 1200) })
	t.Run("tcp", func(t *testing.T) { channelDataThrough(t, at, true, 1201) }) // with padding
}

func channelDataThrough(t *testing.T, at netip.AddrPort, stream bool, size int) {
	const clients = 5
	l := open(t, load.Config{Server: at, Stream: stream, User: "user1", Password: "passwd1", Clients: clients, Size: size})
	if relays := l.Relays(); len(relays) != clients || !relays[0].IsValid() || relays[0] == relays[1] {
		t.Fatalf("relays %v", relays)
	}
	whole(t, run(t, l, load.Up).Up, clients, size)
	both := run(t, l, load.Both)
	whole(t, both.Up, clients, size)
	whole(t, both.Down, clients, size)
	whole(t, run(t, l, load.Echo).Down, clients, size)
	if alive, err := l.Refresh(t.Context()); alive != clients || err != nil {
		t.Errorf("%d of %d clients refreshed: %v", alive, clients, err)
	}
}

func TestWrongPasswordIsReported(t *testing.T) {
	_, err := load.Open(t.Context(), load.Config{Server: coturn(t), User: "user1", Password: "wrong", Timeout: 30 * time.Second})
	if err == nil || !strings.Contains(err.Error(), "client 0: Allocate at 127.0.0.1:") || !strings.Contains(err.Error(), ": 401 ") {
		t.Errorf("error %v", err)
	}
}

func TestNoAnswer(t *testing.T) {
	at := netlabtest.UDPAddress(t)
	_, err := load.Open(t.Context(), load.Config{Server: at, User: "u", Password: "p", Timeout: 50 * time.Millisecond})
	if err == nil || !strings.Contains(err.Error(), "client 0: Allocate was not answered by "+at.String()) {
		t.Errorf("error %v", err)
	}
	_, err = load.Open(t.Context(), load.Config{To: []netip.AddrPort{at}, Timeout: 50 * time.Millisecond})
	if err == nil || !strings.Contains(err.Error(), "nothing it sends to "+at.String()+" arrives at 127.0.0.1:") {
		t.Errorf("error %v", err)
	}
}

// An echo elsewhere has no clock of ours: the round trip is halved and the report says so.
func TestPeerElsewhere(t *testing.T) {
	l, err := load.Open(t.Context(), load.Config{Peer: echo(t), Clients: 2, Size: 64, Timeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	report, err := l.Run(t.Context(), load.Phase{Rate: 1000, Count: 100, Direction: load.Echo})
	if err != nil || !report.Halved || report.Down.Sum.Received == 0 || len(report.Up.Connections) != 0 {
		t.Errorf("%v, report %+v", err, report)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if report, err = l.Run(ctx, load.Phase{Direction: load.Echo}); err != nil || report.Down.Sum.Sent != 0 {
		t.Errorf("a phase without an end of its own ends with its context: %v, %+v", err, report)
	}
	if _, err := l.Run(t.Context(), load.Phase{Rate: 1, Duration: 1, Direction: load.Up}); err == nil {
		t.Error("a phase to a far end that cannot count ran")
	}
}

// echo answers datagrams until the test ends.
func echo(t *testing.T) netip.AddrPort {
	t.Helper()
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	go func() {
		buffer := make([]byte, 2048)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buffer)
			if err != nil {
				return
			}
			_, _ = conn.WriteToUDPAddrPort(buffer[:n], from)
		}
	}()
	return conn.LocalAddr().(*net.UDPAddr).AddrPort()
}

func TestFloodOfAllocates(t *testing.T) {
	const count = 3000
	at := coturn(t)
	open(t, load.Config{Server: at, User: "user1", Password: "passwd1"}) // it serves when that has worked
	got, err := loadtest.Flood{Server: at, Count: count, Rate: 2000}.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got.Sent+got.Refused != count || got.Answered == 0 || got.Codes[401] != got.Answered || got.SentBytes != got.Sent*28 {
		t.Errorf("%+v", got)
	}
}

func TestConfigIsChecked(t *testing.T) {
	for want, config := range map[string]load.Config{
		"-1 clients: want 1 to":    {Clients: -1},
		"20000 clients: want 1 to": {Clients: 20000},
		"datagrams of 31 bytes":    {Size: 31},
		"bursts of 65 datagrams":   {Burst: 65},
		"lifetime of 1ms":          {Lifetime: time.Millisecond},
		"want one of them":         {Server: netip.MustParseAddrPort("127.0.0.1:1"), To: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:2")}},
	} {
		if _, err := load.Open(t.Context(), config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
