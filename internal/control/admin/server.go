package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/control/history"
	"github.com/weir-lb/weir/internal/metrics"
)

// Config defines where to listen and what to serve. Function values may be called from several goroutines at once; nil ones
// answer 404 (Ready: always ready).
type Config struct {
	Address string   // HOST:PORT or unix:/path
	Token   string   // the credential over TCP; empty: only probes and metrics there
	Part    string   // what answers, such as lb or turn; a Client distinguishes parts by it
	Hosts   []string // names that a Host header may have besides localhost, this machine's own name and addresses

	Ready   func() error
	Metrics func() []metrics.Sample
	// MetricsPath is where Metrics are served; default /metrics.
	MetricsPath string
	Status      func() any                                     // encoded as JSON
	Override    func(by, service, backend, value string) error // by is who asks
	// Flows calls yield for each flow until it returns false.
	Flows func(yield func(v1.Flow) bool)
	// Console runs operator commands, one line each, until the input ends or ctx does.
	Console func(ctx context.Context, in io.Reader, out io.Writer) error
	// Trace writes what it sees until ctx ends, as selected by the request; flush: nothing more is available now. An error
	// before the first line becomes the answer, ErrBusy or an error of the request; later ones end the stream.
	Trace func(ctx context.Context, query url.Values, write func(line any, flush bool) error) error
	// Applied writes which configuration is in force, now and at each change, until ctx ends.
	Applied func(ctx context.Context, write func(line any, flush bool) error) error
	// Owners writes which nodes of a CoAP cluster this is, and where sessions have moved, now and at each change, until ctx ends.
	Owners func(ctx context.Context, write func(line any, flush bool) error) error
	Page   http.Handler
	// Events returns the log records with numbers above after.
	Events func(after uint64) v1.EventList
	// Plots are what GET /history has of the last hour, from Metrics. Empty: there is none.
	Plots []history.Plot
	// API describes all paths that the part can serve, as OpenAPI in JSON; nil: there is no description.
	API []byte
	// Configuration is what is changed at run time; nil: nothing.
	Configuration *Configuration
	// Routes are additional paths of this part. They need the same credential as status.
	Routes []Route

	Log *slog.Logger
}

// Route is one additional path, such as "GET /users". The answer is encoded as JSON; an error is that of the request (400).
type Route struct {
	Pattern string
	MaxBody int64 // bytes of the request's body; default and minimum 64 KiB
	Answer  func(*http.Request) (any, error)
}

// ErrUnknownTarget is wrapped by errors of Config.Override when there is no such service or backend; it becomes status 404.
var ErrUnknownTarget = errors.New("unknown target")

// ErrServed is in the error of Open when another process serves the Unix socket.
var ErrServed = errors.New("another process serves it")

const (
	maxConnections = 256 // open at one time
	maxOperators   = 64  // requests with a credential that are answered at one time
	maxFollowers   = 32  // more of them for each path whose answers go on, such as POST /config-watch
	maxBody        = 64 << 10
	writeTimeout   = 30 * time.Second
	endTime        = time.Second
)

// Server is an open address.
type Server struct {
	config    Config
	listener  *limited
	unix      string        // path of the Unix socket; empty: TCP
	operators chan struct{} // slots of requests with a credential
	patterns  []v1.Route
	http      *http.Server
	history   *history.Recorder // nil: none
	stopping  context.Context   // ends hijacked consoles
	stop      context.CancelFunc
}

// Open listens. Errors: an address that cannot be read or bound.
func Open(config Config) (*Server, error) {
	config.Log = cmp.Or(config.Log, slog.New(slog.DiscardHandler))
	listener, path, err := listen(config.Address)
	if err != nil {
		return nil, err
	}
	s := &Server{config: config, listener: newLimited(listener, maxConnections), unix: path, operators: make(chan struct{}, maxOperators)}
	if host, err := os.Hostname(); err == nil {
		s.config.Hosts = append(slices.Clone(config.Hosts), host)
	}
	if len(config.Plots) > 0 && config.Metrics != nil {
		s.history = history.New(append(slices.Clip(config.Plots), processPlots()...))
	}
	s.stopping, s.stop = context.WithCancel(context.Background())
	s.http = &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       30 * time.Second,
		ConnContext:       withTrackedConn,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(config.Log.Handler(), slog.LevelDebug),
	}
	return s, nil
}

// Address is where the server listens, in the form of Config.Address, with the port the kernel chose.
func (s *Server) Address() string {
	if s.unix != "" {
		return "unix:" + s.unix
	}
	return s.listener.Addr().String()
}

// Run serves until ctx ends, lets requests finish for at most endTime, and closes the listener.
func (s *Server) Run(ctx context.Context) error {
	defer s.stop()
	if s.history != nil {
		recorded := make(chan struct{})
		defer func() { <-recorded }()
		recording, end := context.WithCancel(ctx)
		defer end()
		go func() {
			defer close(recorded)
			s.record(recording)
		}()
	}
	failed := make(chan error, 1)
	go func() { failed <- s.http.Serve(s.listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("admin on %s: %w", s.Address(), err)
	case <-ctx.Done():
	}
	s.stop()
	grace, cancel := context.WithTimeout(context.Background(), endTime)
	defer cancel()
	if err := s.http.Shutdown(grace); err != nil {
		s.http.Close()
	}
	<-failed
	return nil
}

// Close closes the listener of a server whose Run was never called.
func (s *Server) Close() error {
	s.stop()
	return s.listener.Close()
}

// listen opens an address. path is that of a Unix socket.
func listen(address string) (listener net.Listener, path string, err error) {
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		listener, err := listenUnix(path)
		return listener, path, err
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		return nil, "", fmt.Errorf("admin address %q: write HOST:PORT, such as 127.0.0.1:9180, or unix:/path", address)
	}
	listener, err = net.Listen("tcp", address)
	if err != nil {
		return nil, "", fmt.Errorf("admin address %s: %w", address, err)
	}
	return listener, "", nil
}

// listenUnix replaces a socket that no process serves any more, and refuses to replace one that is served. Only the owner can
// ever open the socket, because it has its mode before it has a name.
func listenUnix(path string) (net.Listener, error) {
	if info, err := os.Lstat(path); err == nil {
		if info.Mode()&os.ModeSocket == 0 {
			return nil, fmt.Errorf("admin socket %s: the file exists and is no socket; remove it or choose another path", path)
		}
		if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
			conn.Close()
			return nil, fmt.Errorf("admin socket %s: %w; stop it or choose another path", path, ErrServed)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("admin socket %s: %w", path, err)
		}
	}
	config := net.ListenConfig{Control: func(_, _ string, conn syscall.RawConn) error {
		var failed error
		err := conn.Control(func(fd uintptr) { failed = unix.Fchmod(int(fd), 0o600) }) // Linux gives it to the name that bind makes
		return errors.Join(err, failed)
	}}
	listener, err := config.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, fmt.Errorf("admin socket %s: %w", path, err)
	}
	return listener, nil
}

// HostAllowed reports whether a Host header names this machine: by an address, which no DNS server can redirect, as
// localhost, or by one of its names. Programs other than browsers may leave it out.
func HostAllowed(host string, names ...string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if host == "" || host == "localhost" || slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, host) }) {
		return true
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil
}
