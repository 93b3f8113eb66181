package lb

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/maglev"
)

// Defaults and bounds that have no place in the spec's types.
const (
	minTimeout      = time.Second
	defaultFlows    = 1 << 18
	maxFlows        = 1 << 26
	defaultFragment = 1 << 14
	maxFragments    = 1 << 22
	defaultHeld     = 256
	maxHeld         = 1 << 16
	defaultPerGram  = 16
	maxPerGram      = 64 // a 64 KB datagram in minimal IPv6 packets has 53 fragments
	defaultWeight   = 100
	// As nfqlb's --M.
	defaultNFQLBSize = 997
)

// Compile checks a spec against itself, the overrides and what the data path can do, fills in defaults, orders by
// name and builds the tables. It returns an *Error, or Errors when several things are wrong. Spec and overrides are not changed and
// not kept. Equal input gives an equal snapshot.
func Compile(spec Spec, overrides *Overrides, caps Caps) (*Snapshot, error) {
	return CompileAfter(nil, spec, overrides, caps)
}

// CompileAfter is Compile for a change of a running configuration. previous is the snapshot in force; nil: none. With
// hash nfqlb, backends and tier members without an index keep the slots that previous gave to their names, and new ones
// take the lowest free slots, as with nfqlb's activate. A slot of a name that is gone is free. Nothing else depends on
// previous, which is not changed; Maglev tables that would be the same are shared with it.
func CompileAfter(previous *Snapshot, spec Spec, overrides *Overrides, caps Caps) (*Snapshot, error) {
	return CompileAt(Moment{}, previous, spec, overrides, caps)
}

// CompileAt is CompileAfter for a running balancer: the tables that previous had are kept for a time (Service.Generations).
func CompileAt(moment Moment, previous *Snapshot, spec Spec, overrides *Overrides, caps Caps) (*Snapshot, error) {
	c := compiler{caps: caps, overrides: overrides, previous: previous, now: moment.Now, history: moment.History, before: map[string]*Service{}, vips: map[vipKey][]takenRange{}}
	if previous != nil {
		for _, service := range previous.Services {
			c.before[service.Name] = service
		}
	}
	snapshot, err := c.compile(&spec)
	if err != nil {
		return nil, err
	}
	return snapshot, nil
}

type compiler struct {
	wrong      Errors // so far, at most maxErrors
	failed     int    // checks that found something wrong
	caps       Caps
	overrides  *Overrides
	previous   *Snapshot           // nil: none
	before     map[string]*Service // of it
	now        time.Time           // zero: earlier tables are not kept
	history    History
	fileHash   Hash
	fileMaglev int                     // slots of services that set no size of their own
	vips       map[vipKey][]takenRange // key without port
	vipCount   int
	endpoints  map[endpoint]Outbound
	rules      []*FlowRule // in the order of the file, later in the order of precedence
	places     []ByteMatch // positions in headers that rules compare
}

// takenRange is a VIP already seen, to find clashes.
type takenRange struct {
	first, last uint16
	path        string
	service     *Service
}

func wrong(path, remedy, what string, args ...any) *Error {
	return &Error{Path: path, What: fmt.Sprintf(what, args...), Remedy: remedy}
}

func (c *compiler) compile(spec *Spec) (*Snapshot, error) {
	snapshot := &Snapshot{}
	c.hashing(spec, snapshot)
	c.keep(c.wholeFile(spec, snapshot))
	if spec.Services == nil { // a file that was emptied or cut short must not end all services
		c.keep(wrong("services", "add a service with name, vips and backends, or write services: [] to balance nothing", "the key is missing"))
	}
	if len(spec.Services) > MaxServices {
		return nil, c.all(wrong("services", "split the file over several load balancers", "%d services, at most %d", len(spec.Services), MaxServices))
	}
	if hosts := spec.Hosts(); len(hosts) > MaxHosts {
		return nil, c.all(wrong("services", "write addresses, or split the file over several load balancers", "%d DNS names, at most %d", len(hosts), MaxHosts))
	}
	slots := 0
	for i := range spec.Services {
		slots += cmp.Or(spec.Services[i].MaglevSize, c.fileMaglev)
	}
	if slots > MaxSlots {
		return nil, c.all(wrong("maglev_size", fmt.Sprintf("write a prime up to %d", MaxSlots/len(spec.Services)), "%d slots of %d services are %d MiB of tables", slots, len(spec.Services), slots>>18))
	}
	snapshot.Services = c.services(spec)
	if err := c.all(nil); err != nil {
		return nil, err
	}
	for _, service := range snapshot.Services {
		c.remember(snapshot, service)
	}
	snapshot.vips = newVIPIndex(snapshot.Services)
	snapshot.outbound = c.endpoints
	if err := c.ruleOrder(snapshot); err != nil {
		return nil, err
	}
	if err := c.tier(spec, snapshot); err != nil {
		return nil, err
	}
	if err := c.announce(spec, snapshot); err != nil {
		return nil, err
	}
	if err := c.sync(spec, snapshot); err != nil {
		return nil, err
	}
	if err := c.decap(spec, snapshot); err != nil {
		return nil, err
	}
	return snapshot, nil
}

// hashing compiles the hash and the table size that services have without keys of their own.
func (c *compiler) hashing(spec *Spec, snapshot *Snapshot) {
	if spec.HashKey != nil {
		snapshot.HashKey = flow.HashKey(*spec.HashKey)
	}
	c.keep(c.checkFileHash(spec))
	c.fileHash, snapshot.Hash = spec.Hash, spec.Hash
	size := maglev.DefaultSize
	if spec.Hash == NFQLB {
		size = defaultNFQLBSize
	}
	c.fileMaglev = cmp.Or(spec.MaglevSize, size)
	if _, err := c.tableSize("maglev_size", c.fileMaglev); err != nil {
		c.keep(err)
		c.fileMaglev = size // the services are checked with one that works
	}
}

// services compiles the services, each with a name of its own. The result is numbered and sorted by name.
func (c *compiler) services(spec *Spec) (services []*Service) {
	names := map[string]int{}
	for i := range spec.Services {
		path := fmt.Sprintf("services[%d]", i)
		if err := checkName(path, "service", spec.Services[i].Name); err != nil {
			c.keep(err)
		} else if other, ok := names[spec.Services[i].Name]; ok {
			c.keep(wrong(path+".name", "give each service its own name", "%q is the name of services[%d] too", spec.Services[i].Name, other))
		} else {
			names[spec.Services[i].Name] = i
		}
		if service := c.service(path, &spec.Services[i]); service != nil {
			services = append(services, service)
		}
	}
	slices.SortFunc(services, func(a, b *Service) int { return cmp.Compare(a.Name, b.Name) })
	for i, service := range services {
		service.Index = i
	}
	return services
}

// maxErrors bounds what is reported of one spec.
const maxErrors = 50

// keep records an error, so that the checks continue. It reports whether there was one.
func (c *compiler) keep(err error) bool {
	if err == nil {
		return false
	}
	c.failed++
	if one := (*Error)(nil); errors.As(err, &one) && len(c.wrong) < maxErrors {
		c.wrong = append(c.wrong, one)
	}
	return true
}

// all returns the errors so far and one more as one error.
func (c *compiler) all(last error) error {
	c.keep(last)
	switch len(c.wrong) {
	case 0:
		return nil
	case 1:
		return c.wrong[0]
	default:
		return c.wrong
	}
}

// wholeFile compiles the keys that belong to no service.
func (c *compiler) wholeFile(spec *Spec, snapshot *Snapshot) (err error) {
	if snapshot.Limits, err = c.limits(&spec.Limits); err != nil {
		return err
	}
	if spec.NoServiceMark != 0 {
		if err := c.reservedMark("no_service_mark", spec.NoServiceMark); err != nil {
			return err
		}
	}
	snapshot.NoServiceMark = spec.NoServiceMark
	if spec.PromiscuousPing && !c.caps.Flows {
		return c.refuse("promiscuous_ping", "remove it", "has no flow rules")
	}
	snapshot.PromiscuousPing = spec.PromiscuousPing
	return nil
}

func (c *compiler) limits(spec *LimitsSpec) (Limits, error) {
	l := Limits{
		Flows:           cmp.Or(spec.Flows, defaultFlows),
		Fragments:       cmp.Or(spec.Fragments, defaultFragment),
		HeldPerDatagram: cmp.Or(spec.HeldPerDatagram, defaultPerGram),
		FragmentTTL:     cmp.Or(spec.FragmentTTL, 2*time.Second),
	}
	if c.caps.MaxFlows > 0 && spec.Flows == 0 {
		l.Flows = min(l.Flows, c.caps.MaxFlows)
	}
	if c.caps.HoldFragments {
		l.HeldFragments = defaultHeld
	}
	if spec.HeldFragments != nil {
		l.HeldFragments = *spec.HeldFragments
	}
	for _, bound := range []struct {
		key             string
		value, low, top int
	}{
		{"flows", l.Flows, 1, maxFlows},
		{"fragments", l.Fragments, 1, maxFragments},
		{"held_fragments", l.HeldFragments, 0, maxHeld},
		{"held_per_datagram", l.HeldPerDatagram, 1, maxPerGram},
	} {
		if bound.value < bound.low || bound.value > bound.top {
			return l, wrong("limits."+bound.key, fmt.Sprintf("write %d to %d", bound.low, bound.top), "%d is out of range", bound.value)
		}
	}
	switch {
	case l.HeldFragments > 0 && !c.caps.HoldFragments:
		return l, c.refuse("limits.held_fragments", "write 0", "cannot hold early fragments")
	case c.caps.MaxFlows > 0 && l.Flows > c.caps.MaxFlows:
		return l, c.refuse("limits.flows", fmt.Sprintf("write at most %d", c.caps.MaxFlows), "cannot hold %d flows", l.Flows)
	case l.FragmentTTL < 10*time.Millisecond || l.FragmentTTL > time.Minute:
		return l, wrong("limits.fragment_ttl", "write 10ms to 1m, such as 2s", "%s is out of range", l.FragmentTTL)
	}
	return l, nil
}

// refuse returns the error for what this data path cannot do, although another might.
func (c *compiler) refuse(path, remedy, what string, args ...any) *Error {
	return wrong(path, remedy+", or choose another --datapath", "the data path "+c.caps.Name+" "+what, args...)
}

func checkName(path, what, name string) error {
	if name == "" {
		return wrong(path+".name", "add a name", "the %s has no name", what)
	}
	if len(name) > 63 {
		return wrong(path+".name", "write at most 63 characters", "a name of %d characters is too long", len(name))
	}
	for _, r := range name {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
		case r == '-', r == '_', r == '.', r == ':', r == '[', r == ']':
		default:
			return wrong(path+".name", "write letters, digits and - _ . : [ ] only", "%q holds %q", name, r)
		}
	}
	return nil
}
