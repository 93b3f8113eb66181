// Package nfqlb makes a configuration of Weir from what the balancer nfqlb prints: `nfqlb show` and `nfqlb flow-list`.
package nfqlb

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-lb/weir/internal/control"
	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// State is the parsed output of nfqlb.
type State struct {
	pools    []*pool
	flows    []flowEntry
	hasFlows bool // a flow-list was read, maybe an empty one
}

// pool is one shared memory object, as of `nfqlb show`.
type pool struct {
	name     string
	where    string // file:line
	own      uint32
	size     int
	lookup   []int
	active   []activeMark
	complete bool // the line Active was read
}

// activeMark is a mark and its slot.
type activeMark struct {
	mark uint32
	slot int
}

// flowEntry is one flow, as of `nfqlb flow-list`.
type flowEntry struct {
	Name         string   `json:"name"`
	Priority     int      `json:"priority"`
	Protocols    []string `json:"protocols"`
	Destinations []string `json:"dests"`
	Sources      []string `json:"srcs"`
	DstPorts     []string `json:"dports"`
	SrcPorts     []string `json:"sports"`
	Match        []string `json:"match"`
	UDPEncap     int      `json:"udpencap"`
	Matches      uint64   `json:"matches_count"`
	Pool         string   `json:"user_ref"`

	where string
}

// Read parses the output of nfqlb commands, one after another.
func (n *State) Read(file string, text []byte) error {
	if len(text) > config.MaxBytes {
		return fmt.Errorf("%s: larger than %d bytes; give the output of fewer commands", file, config.MaxBytes)
	}
	line := 1
	var current *pool
	for len(text) > 0 {
		where := fmt.Sprintf("%s:%d", file, line)
		if text[0] == '[' || text[0] == '{' {
			used, err := n.readFlows(file, line, text)
			if err != nil {
				return err
			}
			line += bytes.Count(text[:used], []byte{'\n'})
			text, current = text[used:], nil
			continue
		}
		row, rest, _ := bytes.Cut(text, []byte{'\n'})
		if err := n.readLine(where, strings.TrimSpace(string(row)), &current); err != nil {
			return err
		}
		text, line = rest, line+1
	}
	return nil
}

// readLine reads one line of `nfqlb show`; current is the object that it belongs to.
func (n *State) readLine(where, row string, current **pool) error {
	key, value, _ := strings.Cut(row, ":")
	value = strings.TrimSpace(value)
	if p := *current; row == "" {
		return nil
	} else if key == "Shm" && value != "" {
		if slices.ContainsFunc(n.pools, func(p *pool) bool { return p.name == value }) {
			return fmt.Errorf("%s: Shm %s is there twice; give the output of each show once", where, value)
		}
		*current = &pool{name: value, where: where}
		n.pools = append(n.pools, *current)
		return nil
	} else if p != nil {
		var ok bool
		switch key {
		case "Fw":
			_, err := fmt.Sscanf(value, "own=%d", &p.own)
			ok = err == nil && value == fmt.Sprintf("own=%d", p.own)
		case "Maglev":
			var slots int
			_, err := fmt.Sscanf(value, "M=%d, N=%d", &p.size, &slots)
			ok = err == nil && value == fmt.Sprintf("M=%d, N=%d", p.size, slots) && p.size > 0
		case "Lookup":
			ok = p.readLookup(value)
		case "Active":
			ok = p.readActive(value)
		}
		if ok {
			return nil
		}
	}
	return fmt.Errorf("%s: %q is not a line of nfqlb show or nfqlb flow-list; give the output of nfqlb 1.1 or 1.2 as it was printed", where, row)
}

func (p *pool) readLookup(text string) bool {
	for _, word := range strings.Fields(strings.TrimSuffix(text, "...")) {
		slot, err := strconv.Atoi(word)
		if err != nil {
			return false
		}
		p.lookup = append(p.lookup, slot)
	}
	return true
}

func (p *pool) readActive(text string) bool {
	p.complete = true
	for _, word := range strings.Fields(text) {
		mark, slot, ok := strings.Cut(strings.TrimSuffix(word, ")"), "(")
		m, err1 := strconv.ParseUint(mark, 10, 32)
		s, err2 := strconv.Atoi(slot)
		if !ok || err1 != nil || err2 != nil || s < 0 || !strings.HasSuffix(word, ")") {
			return false
		}
		p.active = append(p.active, activeMark{uint32(m), s})
	}
	return true
}

// readFlows reads the JSON of `nfqlb flow-list`, a list or with --name one flow, and returns its length.
func (n *State) readFlows(file string, line int, text []byte) (int, error) {
	at := func(offset int64) string {
		return fmt.Sprintf("%s:%d", file, line+bytes.Count(text[:min(int(offset), len(text))], []byte{'\n'}))
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	wrong := func(err error) error {
		offset := decoder.InputOffset()
		if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
			offset = syntax.Offset
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			offset, err = int64(len(text)), errors.New("the list ends in the middle")
		}
		return fmt.Errorf("%s: %s is not a flow of nfqlb flow-list: %w; give the output as it was printed", at(offset), at(offset), err)
	}
	one := func() error {
		var flow flowEntry
		if err := decoder.Decode(&flow); err != nil {
			return wrong(err)
		}
		flow.where = at(decoder.InputOffset())
		n.flows = append(n.flows, flow)
		return nil
	}
	n.hasFlows = true
	if text[0] == '{' {
		err := one()
		return int(decoder.InputOffset()), err
	}
	if _, err := decoder.Token(); err != nil {
		return 0, wrong(err)
	}
	for decoder.More() {
		if err := one(); err != nil {
			return 0, err
		}
	}
	if _, err := decoder.Token(); err != nil {
		return 0, wrong(err)
	}
	return int(decoder.InputOffset()), nil
}

// Configuration writes a weir.yaml and checks it.
func (n *State) Configuration() (text []byte, warnings []string, err error) {
	if err := n.check(); err != nil {
		return nil, nil, err
	}
	var out bytes.Buffer
	out.WriteString(`# Written by weir lb import nfqlb. nfqlb show and flow-list do not print these; add what you use:
#   nfqlb lb, flowlb: --ft_size, --ft_buckets, --ft_frag, --ft_ttl -> limits; --notargets_fwmark -> no_backend_mark of the service;
#   --nolb_fwmark -> no_service_mark; --hash_mode=0 -> sctp_hash: flow; --promiscuous_ping -> promiscuous_ping: true;
#   the address of each backend, for weir lb rules.
hash: nfqlb
`)
	for _, p := range n.pools {
		if p.own != 0 {
			p.writeTier(&out)
		}
	}
	out.WriteString("services:\n")
	for _, p := range n.pools {
		if p.own != 0 {
			continue
		}
		flows, err := n.flowsOf(p)
		if err != nil {
			return nil, nil, err
		}
		if len(flows) == 0 {
			warnings = append(warnings, fmt.Sprintf("%s: no flow leads to Shm %s; it is left out", p.where, p.name))
			continue
		}
		fmt.Fprintf(&out, "- name: %s\n  mode: mark\n  maglev_size: %d\n  flows:\n", quoteYAML(p.name), p.size)
		for _, flow := range flows {
			fmt.Fprintf(&out, "  - {%s}\n", flow)
		}
		p.writeOwners(&out, "  backends", "fw")
	}
	differ, err := n.compare(out.Bytes())
	return out.Bytes(), append(warnings, differ...), err
}

// check reports what cannot be expressed in one configuration.
func (n *State) check() error {
	tiers, targets := 0, 0
	for _, p := range n.pools {
		switch {
		case p.size == 0 || !p.complete:
			return fmt.Errorf("%s: the output about Shm %s has no line Maglev or Active; give the whole output of nfqlb show", p.where, p.name)
		case p.own == 0:
			targets++
		default:
			tiers++
		}
		if tiers > 1 {
			return fmt.Errorf("%s: Shm %s is a second one with an own mark; a balancer is in one tier: leave one out", p.where, p.name)
		}
	}
	switch {
	case targets == 0:
		return errors.New("no Shm with own=0 was given; add the output of nfqlb show --shm=NAME of each target pool")
	case targets > 1 && !n.hasFlows:
		return errors.New("several Shm, and no flows; add the output of nfqlb flow-list, or leave all but one out")
	}
	for _, f := range n.flows {
		known := slices.ContainsFunc(n.pools, func(p *pool) bool { return p.name == f.Pool && p.own == 0 })
		if !known && !f.helper() {
			return fmt.Errorf("%s: flow %q leads to Shm %q, which is not given; add the output of nfqlb show --shm=%s", f.where, f.Name, f.Pool, f.Pool)
		}
	}
	return nil
}

// helper reports whether nfqlb made the flow itself, for the udpencap of another; Weir needs none.
func (f *flowEntry) helper() bool { return strings.HasPrefix(f.Name, "#") && f.Pool == "" }

func (p *pool) writeTier(out *bytes.Buffer) {
	fmt.Fprintf(out, "tier:\n  self: lb%d\n  maglev_size: %d\n", p.own, p.size)
	p.writeOwners(out, "  members", "lb")
}

func (p *pool) writeOwners(out *bytes.Buffer, key, prefix string) {
	if len(p.active) == 0 {
		fmt.Fprintf(out, "%s: []\n", key)
		return
	}
	fmt.Fprintf(out, "%s:\n", key)
	for _, a := range p.active {
		fmt.Fprintf(out, "  - {name: %s%d, mark: %d, index: %d}\n", prefix, a.mark, a.mark, a.slot)
	}
}

// flowsOf are the flow rules of a pool, in YAML's flow style.
func (n *State) flowsOf(p *pool) ([]string, error) {
	if !n.hasFlows {
		return []string{"name: all"}, nil // nfqlb lb
	}
	var all []string
	for i := range n.flows {
		f := &n.flows[i]
		if f.Pool != p.name {
			continue
		}
		parts := []string{"name: " + quoteYAML(f.Name)}
		if f.Priority != 0 {
			parts = append(parts, fmt.Sprintf("priority: %d", f.Priority))
		}
		destinations, err := f.prefixes(f.Destinations)
		if err != nil {
			return nil, err
		}
		sources, err := f.prefixes(f.Sources)
		if err != nil {
			return nil, err
		}
		for _, list := range []struct {
			key    string
			values []string
		}{
			{"protocols", f.Protocols},
			{"destinations", destinations},
			{"sources", sources},
			{"destination_ports", f.DstPorts},
			{"source_ports", f.SrcPorts},
			{"match", f.Match},
		} {
			if len(list.values) > 0 {
				quoted := make([]string, len(list.values))
				for i, value := range list.values {
					quoted[i] = quoteYAML(value)
				}
				parts = append(parts, list.key+": ["+strings.Join(quoted, ", ")+"]")
			}
		}
		if f.UDPEncap != 0 {
			parts = append(parts, fmt.Sprintf("udp_encap: %d", f.UDPEncap))
		}
		all = append(all, strings.Join(parts, ", "))
	}
	return all, nil
}

// prefixes converts nfqlb's prefixes to Weir's. nfqlb knows IPv6 only, with IPv4 in ::ffff:0:0/96: a prefix that contains
// all of that covers IPv4 too.
func (f *flowEntry) prefixes(texts []string) ([]string, error) {
	var all []string
	for _, text := range texts {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("%s: flow %q: %q is not a prefix; give the output of nfqlb flow-list as it was printed", f.where, f.Name, text)
		}
		switch a := prefix.Addr(); {
		case a.Is4In6() && prefix.Bits() >= 96:
			prefix = netip.PrefixFrom(a.Unmap(), prefix.Bits()-96)
		case prefix.Overlaps(netip.MustParsePrefix("::ffff:0:0/96")):
			all = append(all, "0.0.0.0/0")
		}
		all = append(all, prefix.Masked().String())
	}
	return all, nil
}

// compare loads the configuration as weir check does, and compares its tables with those of nfqlb.
func (n *State) compare(text []byte) (warnings []string, err error) {
	spec, document, err := config.Decode[lb.Spec]("weir.yaml", text)
	if err != nil {
		return nil, fmt.Errorf("what nfqlb has cannot be a configuration of Weir: %w", err)
	}
	snapshot, err := lb.Compile(spec, nil, lb.AllCaps())
	if err != nil {
		return nil, fmt.Errorf("what nfqlb has cannot be a configuration of Weir: %w", control.Locate(err, document))
	}
	for _, p := range n.pools {
		var slots []int
		if service := snapshot.Service(p.name); service != nil {
			for _, i := range service.Maglev[:min(len(service.Maglev), len(p.lookup))] {
				slots = append(slots, service.Backends[i].Slot)
			}
		} else if p.own != 0 {
			for _, i := range snapshot.Tier.Maglev[:min(len(snapshot.Tier.Maglev), len(p.lookup))] {
				slots = append(slots, snapshot.Tier.Members[i].Slot)
			}
		} else {
			continue
		}
		if len(slots) > 0 && !slices.Equal(slots, p.lookup[:len(slots)]) {
			warnings = append(warnings, fmt.Sprintf("%s: the table of Shm %s is not the one that Weir builds: that nfqlb uses another C library than glibc, so both together would split flows; replace all balancers of the tier at once", p.where, p.name))
		}
	}
	return warnings, nil
}

// plainYAML is text that needs no quotes in a list in brackets and reads as text or as a plain value.
var plainYAML = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_./-]*$`)

// quoteYAML writes text for YAML's flow style.
func quoteYAML(text string) string {
	if plainYAML.MatchString(text) && !slices.Contains([]string{"true", "false", "null", "yes", "no", "on", "off"}, strings.ToLower(text)) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", "''") + "'"
}
