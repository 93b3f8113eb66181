package coap

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// californiumOptions are the options of Californium's extended plugtest server under their own names, in addition to those that Weir has anyway.
type californiumOptions struct {
	switches map[string]*[2]bool // by name: --NAME, --no-NAME
	refused  map[string]*string
	interval string
	names    []string // of --interfaces
	patterns []string
	noOSCORE bool
	given    func(name string) bool
}

// californiumSwitch is an option that is set with --NAME and --no-NAME.
type californiumSwitch struct{ name, on, off string }

// californiumSwitches lists them. A text is shown in the help; without one, the option says what is so anyway, and is hidden.
func californiumSwitches() []californiumSwitch {
	return []californiumSwitch{
		{"benchmark", "", "do not serve /benchmark"},
		{"dtls-cluster-backward", "", "answer forwarded records directly instead of through the node they came by"},
		{"external", "", "with an address without a host: not on addresses other than loopback"},
		{"loopback", "", "with an address without a host: not on loopback addresses"},
		{"ipv4", "", "with an address without a host: not on IPv4 addresses"},
		{"ipv6", "", "with an address without a host: not on IPv6 addresses"},
		{"plugtest", "serve the resources of Californium's plugtest server as well, in blocks of 64 bytes: on all listeners, or without one of --listen, --dtls, --listen-tcp and --listen-tls on ports 5683 and 5684; everybody may change what they hold", ""},
		{"tcp", "CoAP over TCP and TLS at the addresses of --listen and --dtls as well", "no listeners for TCP and TLS"},
		{"diagnose", "serve the counters at /diagnose, to everybody", ""},
		{"echo-delay", "/echo takes delay=1..60000, in milliseconds", ""},
		{"dtls-cluster-mac", "", "no code authenticates the datagrams that nodes forward, though their link is secured"},
	}
}

// californiumRefused are options that Weir has no like of, with what to do instead.
func californiumRefused() map[string]string {
	const (
		restart = "a directory holds the DTLS sessions: --state DIR"
		move    = "DTLS sessions stay on their host; there, weir coap upgrade and --state DIR keep them over a restart"
	)
	return map[string]string{
		"k8s-monitor": "write --metrics :PORT, which serves /readyz and /livez",
		"k8s-restore": move, "local-restore": move, "other-restore": move, "restore-max-age": move,
		"store-file":       restart,
		"store-max-age":    restart + "; --session-idle closes those that have been silent for so long",
		"store-password64": restart + ", which belongs on a tmpfs: its files are not encrypted",
	}
}

func (c *californiumOptions) add(flags *pflag.FlagSet) {
	c.given, c.switches, c.refused = flags.Changed, map[string]*[2]bool{}, map[string]*string{}
	for _, s := range californiumSwitches() {
		values := new([2]bool)
		c.switches[s.name] = values
		c.flag(flags, &values[0], s.name, s.on)
		c.flag(flags, &values[1], "no-"+s.name, s.off)
	}
	for name, instead := range californiumRefused() {
		c.refused[name] = flags.String(name, "", instead)
		_ = flags.MarkHidden(name) // it exists
	}
	flags.BoolVar(&c.noOSCORE, "no-oscore", false, "without OSCORE")
	flags.StringSliceVar(&c.names, "interfaces", nil, "with an address without a host: only the addresses of these interfaces")
	flags.StringSliceVar(&c.patterns, "interfaces-pattern", nil, "with an address without a host: only the addresses of interfaces whose name one of these regular expressions matches")
	flags.StringVar(&c.interval, "notify-interval", "", "period of /benchmark, /obs and its siblings, such as 500ms, or in Californium's form 500[ms] (default 5s)")
}

func (c *californiumOptions) flag(flags *pflag.FlagSet, value *bool, name, usage string) {
	flags.BoolVar(value, name, false, usage)
	if usage == "" {
		_ = flags.MarkHidden(name) // it exists
	}
}

// errOSCORE is for Californium's --oscore, which has no value.
var errOSCORE = errors.New("--oscore: write --oscore FILE, or --oscore test for the context of Californium's plugtest server")

// californiumFlagError names what to write where a flag has a value here and none at Californium's server.
func californiumFlagError(cmd *cobra.Command, err error) error {
	if missing := (*pflag.ValueRequiredError)(nil); errors.As(err, &missing) && missing.GetSpecifiedName() == "oscore" {
		err = errOSCORE
	}
	return cmd.Root().FlagErrorFunc()(cmd, err)
}

// check refuses what Weir has no like of. oscore is the value of --oscore.
func (c *californiumOptions) check(oscore string) error {
	for _, s := range californiumSwitches() {
		if c.given(s.name) && c.given("no-"+s.name) {
			return fmt.Errorf("--%s and --no-%s exclude each other; remove one", s.name, s.name)
		}
	}
	for name, instead := range californiumRefused() {
		if c.given(name) {
			return fmt.Errorf("--%s: %s", name, instead)
		}
	}
	if c.given("oscore") && strings.HasPrefix(oscore, "-") { // the option behind it
		return errOSCORE
	}
	if c.given("oscore") && c.noOSCORE {
		return fmt.Errorf("--oscore and --no-oscore exclude each other; remove one")
	}
	return nil
}

// on returns whether a switch is on; nil: it was not given.
func (c *californiumOptions) on(name string) *bool {
	values := c.switches[name]
	switch {
	case c.given(name):
		return new(values[0])
	case c.given("no-" + name):
		return new(!values[1])
	}
	return nil
}

// off reports whether a switch was given as off.
func (c *californiumOptions) off(name string) bool {
	on := c.on(name)
	return on != nil && !*on
}

// parseInterval reads a time in Californium's form, such as 5[s], or in Go's. A bare number is refused, as in every flag
// (Californium takes it as milliseconds).
func parseInterval(text string) (time.Duration, error) {
	if _, err := strconv.ParseUint(text, 10, 64); err == nil {
		return 0, fmt.Errorf("--notify-interval: write %sms or %ss, not %s", text, text, text)
	}
	if parts := regexp.MustCompile(`^(\d+)\[(ms|s|min|h)\]$`).FindStringSubmatch(text); parts != nil {
		n, err := strconv.Atoi(parts[1])
		unit := map[string]time.Duration{"ms": time.Millisecond, "s": time.Second, "min": time.Minute, "h": time.Hour}[parts[2]]
		if err != nil || n > int(1000*time.Hour/unit) {
			return 0, fmt.Errorf("--notify-interval: %s is too long", text)
		}
		return time.Duration(n) * unit, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("--notify-interval: %q is no time; write 5s or 500ms", text)
	}
	return d, nil
}
