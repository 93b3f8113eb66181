package cli

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/client"
	"github.com/weir-lb/weir/docs/openapi"
	"github.com/weir-lb/weir/internal/control/admin"
	"github.com/weir-lb/weir/internal/events"
	"github.com/weir-lb/weir/internal/privilege"
	"github.com/weir-lb/weir/internal/readfile"
	"github.com/weir-lb/weir/web"
)

// AdminPart is what a serving command is called by its clients, and where it answers unless flags say otherwise.
type AdminPart struct {
	Name    string // of the Unix socket's file, and what every answer names
	metrics string // probes and metrics
	several bool   // several instances may run at the same time: a further one takes a free address
}

// LBPart is weir lb run.
func LBPart() AdminPart { return AdminPart{Name: "lb", metrics: "127.0.0.1:9180"} }

// NATPart is weir nat.
func NATPart() AdminPart { return AdminPart{Name: "nat", metrics: "127.0.0.1:9181", several: true} }

// CoapPart is weir coap server.
func CoapPart() AdminPart { return AdminPart{Name: "coap", metrics: "127.0.0.1:9182", several: true} }

// TurnPart is weir turn gateway.
func TurnPart() AdminPart { return AdminPart{Name: "turn", metrics: "127.0.0.1:9183"} }

// StunnerdPart is weir turn stunnerd: Pods of one node's network each have one.
func StunnerdPart() AdminPart {
	return AdminPart{Name: "turn", metrics: "127.0.0.1:9183", several: true}
}

// DecapPart is weir lb decap.
func DecapPart() AdminPart { return AdminPart{Name: "decap", metrics: "127.0.0.1:9184", several: true} }

// TurnAuthPart is weir turn auth.
func TurnAuthPart() AdminPart {
	return AdminPart{Name: "turn-auth", metrics: "127.0.0.1:9186", several: true}
}

// OperatorPart is weir operator.
func OperatorPart() AdminPart { return AdminPart{Name: "operator", metrics: "127.0.0.1:9185"} }

// Address is the default admin address of the part.
func (p AdminPart) Address() string { return "unix:" + p.socket(controlDirectory()) }

// socket is the default path of the part's Unix socket. Network namespaces share the file system: in one that has a name, as of
// ip netns, the socket has it too.
func (p AdminPart) socket(directory string) string {
	name := p.Name
	if namespace := namespaceName("/run/netns"); namespace != "" {
		name += "-" + namespace
	}
	return filepath.Join(directory, name+".sock")
}

// controlDirectory is where the Unix sockets of this user's parts are.
func controlDirectory() string {
	uid := os.Geteuid()
	if uid == 0 {
		return "/run/weir"
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "weir")
	}
	return fmt.Sprintf("/tmp/weir-%d", uid)
}

// namespaceName is the name of this network namespace below a directory; empty: it has none.
func namespaceName(directory string) string {
	own, err := os.Stat("/proc/thread-self/ns/net")
	if err != nil {
		return ""
	}
	entries, err := os.ReadDir(directory)
	if err != nil {
		return ""
	}
	for _, entry := range entries {
		if named, err := os.Stat(filepath.Join(directory, entry.Name())); err == nil && os.SameFile(own, named) {
			return entry.Name()
		}
	}
	return ""
}

// ownDirectory makes a directory that only this user may write to, or checks that an existing one is such a directory.
func ownDirectory(path string) error {
	if err := os.Mkdir(path, 0o700); err == nil || !errors.Is(err, os.ErrExist) {
		return err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || info.Mode().Perm()&0o022 != 0 || ok && int(owner.Uid) != os.Geteuid() {
		return fmt.Errorf("%s is no directory of user id %d that only it can write to; remove it", path, os.Geteuid())
	}
	return nil
}

// ServeFlags are shared by commands that stay: --admin, --metrics, --admin-token-file, --admin-host, --log.
type ServeFlags struct {
	part      AdminPart
	directory string // of the default Unix socket
	admin     string
	metrics   string
	TokenFile string
	Hosts     []string
	Log       string
	given     func(flag string) bool
}

// Add adds the flags to a command that serves a part.
func (f *ServeFlags) Add(cmd *cobra.Command, part AdminPart) {
	f.AddAddresses(cmd, part)
	cmd.Flags().StringVar(&f.Log, "log", "text", "log format: text or json")
}

// AddAddresses is Add without --log, for a command with other flags for its log.
func (f *ServeFlags) AddAddresses(cmd *cobra.Command, part AdminPart) {
	flags := cmd.Flags()
	f.part, f.directory, f.given = part, controlDirectory(), flags.Changed
	flags.StringVar(&f.admin, "admin", "", "address for operators: unix:/path, or HOST:PORT with --admin-token-file, or empty for none (default unix:"+f.directory+"/"+part.Name+".sock)")
	flags.StringVar(&f.metrics, "metrics", "", "address for probes and metrics, HOST:PORT, or empty for none (default "+part.metrics+" unless --admin is given)")
	flags.StringVar(&f.TokenFile, "admin-token-file", "", "file with the token that operators need over HOST:PORT (default $"+EnvAdminToken+")")
	flags.StringSliceVar(&f.Hosts, "admin-host", nil, "name by which HTTP clients may call this machine, besides localhost, its own name and addresses")
}

// AdminFile is the path of a file in the directory of the admin socket, with the socket's name and another ending; empty if the admin API has
// no socket.
func (f *ServeFlags) AdminFile(ending string) string {
	socket := f.part.socket(f.directory)
	if f.given("admin") {
		var unix bool
		if socket, unix = strings.CutPrefix(f.admin, "unix:"); !unix {
			return ""
		}
	} else {
		_ = ownDirectory(f.directory) // files may be written before the socket is there, where an error is told
	}
	return strings.TrimSuffix(socket, ".sock") + ending
}

// open opens what the flags request.
func (f *ServeFlags) open(log *slog.Logger, served admin.Config) (servers []*admin.Server, err error) {
	defer func() {
		if err != nil {
			for _, server := range servers {
				err = errors.Join(err, server.Close())
			}
			servers = nil
		}
	}()
	if served.Token, err = AdminToken(f.TokenFile); err != nil {
		return nil, err
	}
	privilege.WarnKeyFile(log, "admin token", f.TokenFile)
	served.Part, served.Hosts, served.Log, served.Page, served.API = f.part.Name, f.Hosts, cmp.Or(served.Log, log), web.Handler(), openapi.Of(f.part.Name)
	if ring := events.RingOf(log); ring != nil {
		served.Events = ring.List
	}
	if f.admin != "" || !f.given("admin") {
		server, err := f.openControl(log, served)
		if err != nil {
			return servers, err
		}
		if server != nil {
			log.Info("admin", "address", server.Address())
			servers = append(servers, server)
		}
	}
	probes := admin.Config{Part: served.Part, Hosts: served.Hosts, Log: served.Log, Ready: served.Ready, Metrics: served.Metrics, Address: f.metrics}
	if !f.given("metrics") && !f.given("admin") {
		probes.Address = f.part.metrics
	}
	if probes.Address == "" {
		return servers, nil
	}
	server, err := admin.Open(probes)
	switch {
	case err == nil:
		log.Info("probes and metrics", "address", server.Address())
		return append(servers, server), nil
	case !f.given("metrics") && f.part.several && errors.Is(err, syscall.EADDRINUSE):
		log.Info("no probes and metrics: another process has the address; name one with --metrics", "address", probes.Address)
		return servers, nil
	}
	return servers, fmt.Errorf("probes and metrics: %w; name another address with --metrics", err)
}

// openControl opens --admin. It returns nil if no flag names it and the default address cannot be opened.
func (f *ServeFlags) openControl(log *slog.Logger, served admin.Config) (*admin.Server, error) {
	served.Address = f.admin
	if f.given("admin") {
		server, err := admin.Open(served)
		if err == nil && !strings.HasPrefix(f.admin, "unix:") && served.Token == "" {
			log.Warn("this address has probes and metrics only: operators need a token over TCP (--admin-token-file) or a Unix socket", "address", server.Address())
		}
		if errors.Is(err, syscall.EADDRINUSE) {
			err = fmt.Errorf("%w; name another one with --admin", err)
		}
		return server, err
	}
	path := f.part.socket(f.directory)
	served.Address = "unix:" + path
	err := ownDirectory(f.directory)
	if err == nil {
		var server *admin.Server
		server, err = admin.Open(served)
		if errors.Is(err, admin.ErrServed) && f.part.several {
			served.Address = fmt.Sprintf("unix:%s-%d.sock", strings.TrimSuffix(path, ".sock"), os.Getpid())
			server, err = admin.Open(served)
		}
		switch {
		case err == nil:
			removeDead(f.directory)
			return server, nil
		case errors.Is(err, admin.ErrServed):
			return nil, fmt.Errorf("%w: give this one its own --admin and --metrics", err)
		}
	}
	log.Warn("operators cannot query this process; name an address with --admin", "error", err)
	return nil, nil
}

// deadAfter is how old a socket must be to be removed: a process listens at its own long before.
const deadAfter = time.Minute

// removeDead removes the sockets of a directory at which no process listens: a process that was killed cannot remove its own. It reads
// at most a few hundred names. What cannot be removed stays; a part that begins at it removes it then.
func removeDead(directory string) {
	const maximum = 512
	dir, err := os.Open(directory)
	if err != nil {
		return
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(maximum) // what was read before an error counts
	for _, name := range names {
		path := filepath.Join(directory, name)
		info, err := os.Lstat(path)
		if err != nil || info.Mode().Type() != os.ModeSocket || !strings.HasSuffix(name, ".sock") || time.Since(info.ModTime()) < deadAfter {
			continue
		}
		conn, err := net.DialTimeout("unix", path, time.Second)
		switch {
		case err == nil:
			conn.Close()
		case errors.Is(err, syscall.ECONNREFUSED):
			_ = os.Remove(path) // another process may have done so
		}
	}
}

// EnvAdminToken is the environment's token where there is no --admin-token-file.
const EnvAdminToken = "WEIR_ADMIN_TOKEN"

// AdminToken reads the token of operators from the file of --admin-token-file, or without one from the environment. Empty: there is none.
func AdminToken(file string) (string, error) {
	if file != "" {
		return ReadToken(file)
	}
	return checkToken("$"+EnvAdminToken, os.Getenv(EnvAdminToken))
}

// ClientFlags are shared by commands that ask a running part.
type ClientFlags struct {
	parts            []AdminPart
	admin, tokenFile string
	AsJSON           bool
}

// Add has the first of the parts asked, unless --admin names one of the others.
func (f *ClientFlags) Add(cmd *cobra.Command, part AdminPart, others ...AdminPart) {
	f.AddAddress(cmd, part, others...)
	cmd.Flags().BoolVar(&f.AsJSON, "json", false, "print JSON")
}

// AddAddress is Add without --json.
func (f *ClientFlags) AddAddress(cmd *cobra.Command, part AdminPart, others ...AdminPart) {
	f.parts = append([]AdminPart{part}, others...)
	cmd.Flags().StringVar(&f.admin, "admin", "", "where the running one answers: unix:/path or HOST:PORT (default unix:"+controlDirectory()+"/"+part.Name+".sock)")
	cmd.Flags().StringVar(&f.tokenFile, "admin-token-file", "", "file with the token that HOST:PORT needs (default $"+EnvAdminToken+")")
}

// Client is for the part that the flags name. It does not connect yet.
func (f *ClientFlags) Client() (*client.Client, error) {
	token, err := AdminToken(f.tokenFile)
	if err != nil {
		return nil, UsageError(err)
	}
	var names []string
	for _, part := range f.parts {
		names = append(names, part.Name)
	}
	address := f.admin
	if address == "" {
		address = "unix:" + f.parts[0].socket(controlDirectory())
	}
	return client.New(address, token, names...), nil
}

// maxTokenFile bounds a file with a token.
const maxTokenFile = 4096

// ReadToken reads a file that holds one token; without a path it is empty.
func ReadToken(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	text, err := readfile.Once(path, maxTokenFile)
	if err != nil {
		return "", fmt.Errorf("token: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		token = " " // a token file is named, so a token is required
	}
	return checkToken(path, token)
}

// checkToken refuses a token that is easy to guess; an empty one is allowed.
func checkToken(where, token string) (string, error) {
	if token != "" && len(token) < 16 {
		return "", fmt.Errorf("token in %s: %d characters; write at least 16, for instance from `openssl rand -hex 16`", where, len(strings.TrimSpace(token)))
	}
	return token, nil
}
