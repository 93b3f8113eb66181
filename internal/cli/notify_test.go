package cli

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// manager stands for systemd: it receives what services send.
type manager struct {
	t    *testing.T
	conn *net.UnixConn
}

func newManager(t *testing.T) *manager {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return &manager{t, conn}
}

// next is the next message, empty if none comes within the time.
func (m *manager) next(within time.Duration) string {
	m.t.Helper()
	if err := m.conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		m.t.Fatal(err)
	}
	text := make([]byte, 1024)
	n, err := m.conn.Read(text)
	if err != nil {
		return ""
	}
	return string(text[:n])
}

const long = time.Minute // for what comes

// A service reports itself once its loops answer, answers the watchdog as long as they do, and reports its end.
func TestNotify(t *testing.T) {
	m := newManager(t)
	t.Setenv("WATCHDOG_USEC", "20000")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	answers := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- Notify(slog.New(slog.DiscardHandler), func(ctx context.Context) {
			select {
			case <-answers:
			case <-ctx.Done():
			}
		})(ctx)
	}()
	if text := m.next(50 * time.Millisecond); text != "" {
		t.Errorf("%q before the loop has answered", text)
	}
	answers <- struct{}{}
	if text := m.next(long); text != "READY=1" {
		t.Errorf("%q, want READY=1", text)
	}
	for range 3 {
		answers <- struct{}{}
		if text := m.next(long); text != "WATCHDOG=1" {
			t.Errorf("%q, want WATCHDOG=1", text)
		}
	}
	if text := m.next(100 * time.Millisecond); text != "" { // five times the period
		t.Errorf("%q while the loop hangs", text)
	}
	cancel()
	if text := m.next(long); text != "STOPPING=1" {
		t.Errorf("%q, want STOPPING=1", text)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A reload is reported until it has ended.
func TestNotifyReload(t *testing.T) {
	m := newManager(t)
	done := make(chan struct{})
	reload(t.Context(), func() <-chan struct{} { return done })
	text := m.next(long)
	usec, found := strings.CutPrefix(text, "RELOADING=1\nMONOTONIC_USEC=")
	if n, err := strconv.ParseUint(usec, 10, 64); !found || err != nil || n == 0 {
		t.Errorf("%q", text)
	}
	if text := m.next(20 * time.Millisecond); text != "" {
		t.Errorf("%q before the reload has ended", text)
	}
	close(done)
	if text := m.next(long); text != "READY=1" {
		t.Errorf("%q, want READY=1", text)
	}
	reload(t.Context(), func() <-chan struct{} { return nil })
	if first, second := m.next(long), m.next(long); !strings.HasPrefix(first, "RELOADING=1\n") || second != "READY=1" {
		t.Errorf("%q, %q of a reload that ends at once", first, second)
	}
}

// The watchdog of another process is not ours: a child of a service has its environment.
func TestWatchdogOfOtherProcess(t *testing.T) {
	t.Setenv("WATCHDOG_USEC", "2000000")
	if period := watchdogPeriod(); period != 2*time.Second {
		t.Errorf("%v without a process id", period)
	}
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()+1))
	if period := watchdogPeriod(); period != 0 {
		t.Errorf("%v", period)
	}
	t.Setenv("NOTIFY_SOCKET", "")
	if err := notify("READY=1"); err != nil {
		t.Errorf("without a manager: %v", err)
	}
}
