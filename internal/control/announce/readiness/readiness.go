package readiness

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-lb/weir/internal/finding"
	"github.com/weir-lb/weir/internal/sockets"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// Config says what to examine.
type Config struct {
	Announce *lb.Announce // nil: nothing is announced, and nothing examined
	// Privilege is the error of privilege.Check for VRRP: what this user lacks, nil: nothing.
	Privilege error
}

// Examine runs the checks that fit the configuration, and returns the findings in the order of the checks. With virtual routers it waits for
// advertisements, 4 s at most. The error names what could not be read.
func Examine(ctx context.Context, c Config) ([]finding.Finding, error) {
	e := &examination{Config: c, ctx: ctx, proc: "/proc", md5: tryMD5, unfit: map[string]bool{}}
	return e.run()
}

// examination is one run. Its function is that of the kernel; tests replace it.
type examination struct {
	Config
	finding.Collector
	ctx   context.Context
	proc  string
	md5   func(*lb.Neighbour) error
	unfit map[string]bool // interfaces on which a virtual router cannot run
}

type check = finding.Check[*examination]

func bgpChecks() []check {
	return []check{
		{Name: "bgp_route", Look: (*examination).routes},
		{Name: "bgp_source", Look: (*examination).sources},
		{Name: "bgp_listen", Look: (*examination).listen},
		{Name: "bgp_password", Look: (*examination).passwords},
		{Name: "bgp_bfd", Look: (*examination).bfd},
	}
}

func vrrpChecks() []check {
	return []check{
		{Name: "vrrp_privileges", Look: (*examination).privileges},
		{Name: "vrrp_interface", Look: (*examination).interfaces},
		{Name: "vrrp_arp", Look: (*examination).arp},
		{Name: "vrrp_rp_filter", Look: (*examination).reversePath},
		{Name: "vrrp_peer", Look: (*examination).peers},
	}
}

func (e *examination) run() ([]finding.Finding, error) {
	var checks []check
	if e.Announce != nil && e.Announce.BGP != nil {
		checks = append(checks, bgpChecks()...)
	}
	if e.Announce != nil && len(e.Announce.VRRP) > 0 {
		checks = append(checks, vrrpChecks()...)
	}
	return finding.Run(e.ctx, &e.Collector, e, checks)
}

// setting is a sysctl of IPv4 and the interface that has it.
type setting struct {
	path  string // below /proc/sys/net
	value int
}

// highest returns the value of a setting that counts for an interface, the higher one of its own and that of "all", and where it is.
func (e *examination) highest(device, key string) (s setting, err error) {
	for _, of := range []string{device, "all"} {
		path := "ipv4/conf/" + of + "/" + key
		value, err := e.sysctl(path)
		if err != nil {
			return s, err
		}
		if s.path == "" || value > s.value {
			s = setting{path, value}
		}
	}
	return s, nil
}

// sysctl reads a number below /proc/sys/net, 0 if this kernel does not have it.
func (e *examination) sysctl(path string) (int, error) {
	text, err := os.ReadFile(filepath.Join(e.proc, "sys/net", path))
	if os.IsNotExist(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// set returns the command that sets a sysctl.
func set(path string, value int) string { return fmt.Sprintf("sysctl -w net/%s=%d", path, value) }

// taken looks for other programs that have a port. It returns the weir that has it, if one runs.
func (e *examination) taken(protocol string, port uint16, counts func(sockets.Socket) bool) (weir, others []sockets.Owner, err error) {
	all, err := sockets.At(e.proc, protocol, port)
	if err != nil {
		return nil, nil, err
	}
	all = slices.DeleteFunc(all, func(s sockets.Socket) bool { return !counts(s) })
	for _, o := range sockets.Owners(e.proc, all) {
		if o.Own || o.Name == "weir" {
			weir = append(weir, o)
		} else {
			others = append(others, o)
		}
	}
	return weir, others, nil
}

// conflict reports that another program has a port. One that is not seen from here may be weir, of another user or in a container.
func (e *examination) conflict(o sockets.Owner, what string, args ...any) {
	if o.PID == 0 {
		e.Bad(finding.Warn, "run weir doctor as root, where the programs of this network run: it names the program, or finds that it is weir",
			what, args...)
		return
	}
	e.Bad(finding.Fail, fmt.Sprintf("kill %d", o.PID), what, args...)
}
