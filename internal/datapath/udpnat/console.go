package udpnat

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-lb/weir/internal/steering/lb"
)

// Intent is the configuration that the console changes in addition to the data path: the user's spec and the overrides on
// it. The control loop implements it. Every change is compiled and applied before the call returns.
type Intent interface {
	Spec() (lb.Spec, bool)
	SetSpec(lb.Spec) error
	SetOverrides(from lb.Overrider, values map[lb.Target]lb.Override) error
}

// Console runs operator commands on a Datapath. Several goroutines may use it; commands that change destinations
// must not run at the same time, so a Console serves one line at a time.
type Console struct {
	datapath *Datapath
	intent   Intent
	options  ConsoleOptions
	running  chan struct{} // a mutex whose wait ends with the context
}

// ConsoleOptions are the differences between weir nat and a balancer with a configuration file.
type ConsoleOptions struct {
	// Resolve converts HOST:PORT into an address for add. Nil refuses add and remove, because a file defines the backends.
	Resolve func(ctx context.Context, hostPort string) (netip.AddrPort, error)
	// Exit ends the program; nil refuses exit.
	Exit func()
	// Admin returns the admin address of a destination that is a node of a cluster, for add; empty: it is none. Nil: none is.
	Admin func(name string) string
}

// NewConsole returns a console.
func NewConsole(d *Datapath, intent Intent, options ConsoleOptions) *Console {
	return &Console{datapath: d, intent: intent, options: options, running: make(chan struct{}, 1)}
}

// command is one console command.
type command struct {
	name, args, help string
	run              func(c *Console, ctx context.Context, args []string) (string, error)
	complete         func(c *Console) []string
}

func commands() []command {
	return []command{
		{"help", "", "list the commands", (*Console).help, nil},
		{"info", "", "list number of NAT entries and destinations; so does an empty line", (*Console).info, nil},
		{"stats", "", "list the counters", (*Console).stats, nil},
		{"entries", "[n]", "list NAT entries, 20 or n of them", (*Console).entries, nil},
		{"clear", "[n]", "drop all NAT entries, or the n oldest", (*Console).clear, nil},
		{"reassign", "", "give every NAT entry a new outgoing address and choose its destination again", (*Console).reassign, nil},
		{"rebalance", "", "make stale destinations active and choose the destination of every NAT entry again", (*Console).rebalance, nil},
		{"add", "<host:port>", "add a destination", (*Console).add, nil},
		{"remove", "<host:port>", "remove a destination", (*Console).remove, (*Console).destinationNames},
		{"drain", "<host:port> [off]", "give a destination no new entries, or end that", (*Console).drain, (*Console).destinationNames},
		{"reverse", "on|off", "switch the reverse address update", (*Console).reverse, func(*Console) []string { return []string{"on", "off"} }},
		{"faults", "[name=value...]", "show or set faults: " + strings.Join(faultNames(), " "), (*Console).faults, func(*Console) []string { return faultNames() }},
		{"exit", "", "end the program; so does quit", (*Console).exit, nil},
	}
}

// alias returns the command for another spelling of its name.
func alias(word string) string {
	switch word {
	case "":
		return "info"
	case "?":
		return "help"
	case "quit":
		return "exit"
	}
	return word
}

// Execute runs one line and returns what to print, without a newline at the end.
func (c *Console) Execute(ctx context.Context, line string) (string, error) {
	select {
	case c.running <- struct{}{}:
		defer func() { <-c.running }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	fields := strings.Fields(line)
	word := ""
	if len(fields) > 0 {
		word, fields = strings.ToLower(fields[0]), fields[1:]
	}
	word = alias(word)
	for _, cmd := range commands() {
		if cmd.name == word {
			if cmd.args == "" && len(fields) > 0 {
				return "", fmt.Errorf("%s takes no argument, got %q", cmd.name, fields[0])
			}
			return cmd.run(c, ctx, fields)
		}
	}
	return "", fmt.Errorf("no command %q; type help", word)
}

// maxLine bounds one line of input in bytes.
const maxLine = 4096

// Serve runs the lines of in one after the other and writes each answer to out, until in ends or ctx does. An error of a
// command is written as its answer; the returned error is one of reading or writing.
func (c *Console) Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, maxLine), maxLine)
	for lines.Scan() {
		if err := ctx.Err(); err != nil {
			return err
		}
		answer, err := c.Execute(ctx, lines.Text())
		if err != nil {
			answer = "error: " + err.Error()
		}
		if _, err := io.WriteString(out, answer+"\n"); err != nil {
			return fmt.Errorf("write the answer: %w", err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read a command: %w", err)
	}
	return nil
}

// Complete returns the line with its last word completed as far as that is unambiguous, and the candidates otherwise.
func (c *Console) Complete(line string) (completed string, candidates []string) {
	start := strings.LastIndexByte(line, ' ') + 1
	word := line[start:]
	var words []string
	first := strings.Fields(line[:start])
	for _, cmd := range commands() {
		switch {
		case len(first) == 0:
			words = append(words, cmd.name)
		case first[0] == cmd.name && cmd.complete != nil:
			words = cmd.complete(c)
		}
	}
	for _, w := range words {
		if strings.HasPrefix(w, word) {
			candidates = append(candidates, w)
		}
	}
	switch len(candidates) {
	case 0:
		return line, nil
	case 1:
		return line[:start] + candidates[0] + " ", nil
	}
	common := candidates[0]
	for _, w := range candidates[1:] {
		for !strings.HasPrefix(w, common) {
			common = common[:len(common)-1]
		}
	}
	return line[:start] + common, candidates
}

func (c *Console) help(context.Context, []string) (string, error) {
	var b strings.Builder
	for _, cmd := range commands() {
		fmt.Fprintf(&b, "%-26s %s\n", strings.TrimSpace(cmd.name+" "+cmd.args), cmd.help)
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

func (c *Console) clear(_ context.Context, args []string) (string, error) {
	n := -1
	if len(args) > 0 {
		var err error
		if n, err = strconv.Atoi(args[0]); err != nil || n < 1 || len(args) > 1 {
			return "", fmt.Errorf("clear %s: write clear, or clear and a number from 1", strings.Join(args, " "))
		}
	}
	return fmt.Sprintf("%d - NAT entries dropped.", c.datapath.Clear(n)), nil
}

func (c *Console) reassign(context.Context, []string) (string, error) {
	return fmt.Sprintf("%d - NAT entries reassigned.", c.datapath.Reassign()), nil
}

func (c *Console) rebalance(context.Context, []string) (string, error) {
	c.datapath.Revive()
	lifted := map[lb.Target]lb.Override{}
	for _, b := range c.datapath.Stats().Backends {
		lifted[b.Target] = lb.NoOverride
	}
	if len(lifted) > 0 {
		if err := c.intent.SetOverrides(lb.FromDatapath, lifted); err != nil {
			return "", err
		}
	}
	moved, of := c.datapath.Rebalance()
	return fmt.Sprintf("reassigned %d destinations of %d.", moved, of), nil
}

func (c *Console) reverse(_ context.Context, args []string) (string, error) {
	if len(args) != 1 || args[0] != "on" && args[0] != "off" {
		return "", errors.New("write reverse on, or reverse off")
	}
	c.datapath.SetReverse(args[0] == "on")
	return fmt.Sprintf("reverse address update %s.", onOff(args[0] == "on")), nil
}

func (c *Console) exit(context.Context, []string) (string, error) {
	if c.options.Exit == nil {
		return "", errors.New("exit is not available here; stop the service instead")
	}
	c.options.Exit()
	return "exit.", nil
}

func onOff(on bool) string {
	if on {
		return "enabled"
	}
	return "disabled"
}

func (c *Console) add(ctx context.Context, args []string) (string, error) {
	spec, i, err := c.editable(args, "add")
	if err != nil {
		return "", err
	}
	addr, err := c.options.Resolve(ctx, args[0])
	if err != nil {
		return "", err
	}
	service := &spec.Services[i]
	if slices.ContainsFunc(service.Backends, func(b lb.BackendSpec) bool { return isNamed(&b, args[0]) }) {
		return "", fmt.Errorf("%s is a destination already", args[0])
	}
	backend := BackendSpec(args[0], addr)
	if c.options.Admin != nil {
		backend.Admin = c.options.Admin(args[0])
	}
	service.Backends = append(slices.Clone(service.Backends), backend)
	if err := c.intent.SetSpec(spec); err != nil {
		return "", err
	}
	return fmt.Sprintf("add destination %s.", args[0]), nil
}

func (c *Console) remove(_ context.Context, args []string) (string, error) {
	spec, i, err := c.editable(args, "remove")
	if err != nil {
		return "", err
	}
	service := &spec.Services[i]
	at := slices.IndexFunc(service.Backends, func(b lb.BackendSpec) bool { return isNamed(&b, args[0]) })
	switch {
	case at < 0:
		return "", fmt.Errorf("no destination %q; there are %s", args[0], strings.Join(c.destinationNames(), ", "))
	case len(service.Backends) == 1:
		return "", fmt.Errorf("%s is the last destination; add another one first", args[0])
	}
	service.Backends = slices.Delete(slices.Clone(service.Backends), at, at+1)
	if err := c.intent.SetSpec(spec); err != nil {
		return "", err
	}
	return fmt.Sprintf("remove destination %s.", args[0]), nil
}

// editable returns a spec whose services may be changed, and the index of the service that add and remove change.
func (c *Console) editable(args []string, word string) (spec lb.Spec, service int, err error) {
	if c.options.Resolve == nil {
		return spec, 0, fmt.Errorf("%s is not available here; edit the configuration file", word)
	}
	if len(args) != 1 {
		return spec, 0, fmt.Errorf("write %s HOST:PORT", word)
	}
	spec, ok := c.intent.Spec()
	if !ok || len(spec.Services) == 0 {
		return spec, 0, errors.New("nothing is configured yet")
	}
	spec.Services = slices.Clone(spec.Services)
	return spec, 0, nil
}

func (c *Console) drain(_ context.Context, args []string) (string, error) {
	value, text := lb.OverrideDrain, "draining"
	if len(args) == 2 && args[1] == "off" {
		value, text = lb.NoOverride, "no longer draining"
	} else if len(args) != 1 {
		return "", errors.New("write drain HOST:PORT, or drain HOST:PORT off")
	}
	targets := map[lb.Target]lb.Override{}
	if spec, ok := c.intent.Spec(); ok {
		for _, s := range spec.Services {
			for _, b := range s.Backends {
				if isNamed(&b, args[0]) {
					targets[lb.Target{Service: s.Name, Backend: b.Name}] = value
				}
			}
		}
	}
	if len(targets) == 0 {
		return "", fmt.Errorf("no destination %q; there are %s", args[0], strings.Join(c.destinationNames(), ", "))
	}
	if err := c.intent.SetOverrides(lb.FromOperator, targets); err != nil {
		return "", err
	}
	return fmt.Sprintf("destination %s is %s.", args[0], text), nil
}

func (c *Console) destinationNames() []string {
	var names []string
	if spec, ok := c.intent.Spec(); ok {
		for _, s := range spec.Services {
			for _, b := range s.Backends {
				names = append(names, b.Name)
			}
		}
	}
	return names
}

// isNamed reports whether text is a backend's name or its address and port.
func isNamed(b *lb.BackendSpec, text string) bool {
	if b.Name == text {
		return true
	}
	return b.Port != nil && netip.AddrPortFrom(b.Address, uint16(*b.Port)).String() == text
}

// BackendSpec returns a destination as a backend of a spec.
func BackendSpec(name string, addr netip.AddrPort) lb.BackendSpec {
	port := int(addr.Port())
	return lb.BackendSpec{Name: name, Address: addr.Addr().Unmap(), Port: &port}
}

// ListenSpec returns an address to listen on as VIPs of a spec; an invalid or unspecified address means every address.
func ListenSpec(at netip.AddrPort) []lb.VIPSpec {
	vip := func(p netip.Prefix) lb.VIPSpec {
		return lb.VIPSpec{
			Address: lb.AddressPrefix{Prefix: p}, Protocol: lb.Protocol(lb.UDP),
			Port: lb.PortRange{First: at.Port(), Last: at.Port()},
		}
	}
	addr := at.Addr().Unmap()
	all4, all6 := netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	switch {
	case !addr.IsValid():
		return []lb.VIPSpec{vip(all4), vip(all6)}
	case addr == netip.IPv4Unspecified():
		return []lb.VIPSpec{vip(all4)}
	case addr == netip.IPv6Unspecified():
		return []lb.VIPSpec{vip(all6)}
	}
	return []lb.VIPSpec{vip(netip.PrefixFrom(addr, addr.BitLen()))}
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
