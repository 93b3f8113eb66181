package lb

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-lb/weir/internal/steering/cid"
)

func (c *compiler) affinity(path string, spec *ServiceSpec, service *Service) error {
	switch {
	case spec.Affinity != nil:
		service.Affinity = *spec.Affinity
	case spec.CID != nil:
		service.Affinity = ByCID
	}
	if spec.CID == nil {
		if service.Affinity == ByCID {
			return wrong(path+".cid", "add cid with protocols and layouts", "affinity cid needs to know the CIDs")
		}
		return nil
	}
	path += ".cid"
	if service.Affinity != ByCID {
		return wrong(path, "remove it, or write affinity: cid", "affinity %s does not read CIDs", service.Affinity)
	}
	if !c.caps.CID {
		return c.refuse(path, "write affinity: flow", "cannot steer by CID")
	}
	for _, vip := range service.VIPs {
		if vip.Protocol != UDP {
			return wrong(path, "put the VIPs of other protocols into a service of their own", "CIDs are carried by udp, a VIP is %s", Protocol(vip.Protocol))
		}
	}
	for _, rule := range service.Rules {
		if len(rule.Protocols) != 1 || rule.Protocols[0] != UDP {
			return wrong(path, "write protocols: [udp] in each flow rule", "CIDs are carried by udp, flow rule %q takes more", rule.Name)
		}
	}
	set := &cid.Set{}
	if len(spec.CID.Protocols) == 0 {
		return wrong(path+".protocols", "add dtls12, dtls13 or quic", "there is no protocol")
	}
	for _, p := range spec.CID.Protocols {
		set.Protocols |= cid.Protocols(p)
	}
	if len(spec.CID.Layouts) == 0 {
		return wrong(path+".layouts", "add a layout, such as {length: 6, owner: {offset: 0, bits: 8}}", "there is no layout")
	}
	if limit := c.caps.MaxLayouts; limit > 0 && len(spec.CID.Layouts) > limit {
		return c.refuse(path+".layouts", "remove those that no CID has any more", "reads at most %d layouts, here are %d", limit, len(spec.CID.Layouts))
	}
	for i := range spec.CID.Layouts {
		at := fmt.Sprintf("%s.layouts[%d]", path, i)
		layout, err := c.layout(at, &spec.CID.Layouts[i])
		if err != nil {
			return err
		}
		set.Layouts = append(set.Layouts, layout)
	}
	if i, err := set.Validate(); err != nil {
		return wrong(fmt.Sprintf("%s.layouts[%d]", path, i), "see `weir check --help` for a layout that works", "%v", err)
	}
	service.CID = set
	return nil
}

func (c *compiler) layout(path string, spec *LayoutSpec) (cid.Layout, error) {
	var layout cid.Layout
	if q := spec.QUICLB; q != nil {
		switch {
		case spec.Length != 0 || spec.Owner != nil || spec.Rotation != nil:
			return layout, wrong(path+".quic_lb", "write either quic_lb or length, owner and rotation", "quic_lb fixes the whole layout")
		case q.Rotation > 6:
			return layout, wrong(path+".quic_lb.rotation", "write 0 to 6", "%d is out of range (7 means unroutable)", q.Rotation)
		case q.ServerIDLength < 1 || q.ServerIDLength > 4:
			return layout, wrong(path+".quic_lb.server_id_length", "write 1 to 4 bytes", "%d is out of range", q.ServerIDLength)
		case q.NonceLength < 4 || q.NonceLength+q.ServerIDLength > 19:
			return layout, wrong(path+".quic_lb.nonce_length", "write 4 to 18 bytes, at most 19 with the server id", "%d is out of range", q.NonceLength)
		}
		layout = cid.QUICLB(q.Rotation, q.ServerIDLength, q.NonceLength)
	} else {
		if spec.Owner == nil {
			return layout, wrong(path+".owner", "add owner: {offset: BITS, bits: BITS}, or quic_lb", "the layout does not say where the owner id is")
		}
		layout = cid.Layout{Length: spec.Length, OwnerOffset: spec.Owner.Offset, OwnerBits: spec.Owner.Bits}
		if r := spec.Rotation; r != nil {
			if r.Bits == 0 {
				return layout, wrong(path+".rotation.bits", "write 1 to 8, or remove rotation", "rotation needs a width")
			}
			layout.RotationOffset, layout.RotationBits, layout.Rotation = r.Offset, r.Bits, r.Value
		}
	}
	if spec.MaskKey != nil {
		if !c.caps.MaskedCID {
			return layout, c.refuse(path+".mask_key", "remove it to leave owner ids readable", "cannot unmask CIDs")
		}
		layout.Mask, layout.MaskKey = cid.MaskSipHash, *spec.MaskKey
	}
	if err := layout.Validate(); err != nil {
		return layout, wrong(path, "change the widths and offsets so that they fit", "%v", err)
	}
	return layout, nil
}

func (c *compiler) backends(path string, spec *ServiceSpec, service *Service) error {
	if most := mostBackends(spec); most > MaxBackends {
		return wrong(path+".backends", "split the service", "%d backends, at most %d; a host counts for %d", most, MaxBackends, MaxHostAddresses)
	}
	names, owners, marks := map[string]int{}, map[uint32]string{}, map[uint32]string{}
	for i := range spec.Backends {
		at := fmt.Sprintf("%s.backends[%d]", path, i)
		b := &spec.Backends[i]
		if c.keep(checkName(at, "backend", b.Name)) {
			continue
		}
		if other, ok := names[b.Name]; ok {
			c.keep(wrong(at+".name", "give each backend its own name", "%q is the name of backends[%d] too", b.Name, other))
			continue
		}
		names[b.Name] = i
		resolved, err := c.resolve(at, spec, b, service)
		c.keep(err)
		for i := range resolved {
			c.oneBackend(at, &resolved[i], spec, service, owners, marks)
		}
	}
	c.layoutNodes(path+".cid", spec, service, names)
	slices.SortFunc(service.Backends, func(a, b *Backend) int { return cmp.Compare(a.Name, b.Name) })
	for i, backend := range service.Backends {
		backend.Index = i
	}
	return nil
}

// oneBackend adds a backend to the service, if nothing is wrong with it.
func (c *compiler) oneBackend(path string, b *BackendSpec, spec *ServiceSpec, service *Service, owners, marks map[uint32]string) {
	backend, err := c.backend(path, b, service)
	if c.keep(err) {
		return
	}
	if other := taken(marks, backend, path); other != "" {
		c.keep(wrong(path+".mark", "remove one of them and give the other their weights", "the same mark as %s", other))
		return
	}
	if c.keep(checkNodes(path, b, spec.CID, service, owners)) {
		return
	}
	backend.Nodes = nodesOf(b, spec.CID)
	service.Backends = append(service.Backends, backend)
}

// taken records the fwmark of a backend; it returns the path of another backend of the service with the same one. Routing
// distinguishes backends of mode mark by nothing else. In the other modes, two backends may have one destination.
func taken(marks map[uint32]string, backend *Backend, path string) string {
	if backend.Service.Mode != Mark || backend.Refuses() {
		return ""
	}
	if other, ok := marks[backend.Mark]; ok {
		return other
	}
	marks[backend.Mark] = path
	return ""
}

// slots assigns the backends their rows of nfqlb's permutation.
func (c *compiler) slots(path string, spec *ServiceSpec, service *Service) error {
	picker := slotPicker{size: service.tableSize}
	for i := range spec.Backends {
		b := &spec.Backends[i]
		if err := picker.add(fmt.Sprintf("%s.backends[%d]", path, i), c.fileHash, b.Index, c.backendHad(spec.Name, b.Name)); err != nil {
			return err
		}
	}
	if c.fileHash != NFQLB {
		return nil
	}
	if err := picker.fill(path + ".backends"); err != nil {
		return err
	}
	for i := range spec.Backends {
		service.Backend(spec.Backends[i].Name).Slot = picker.slots[i]
	}
	return nil
}

// backendHad returns the slot of a backend in the previous snapshot; -1: none.
func (c *compiler) backendHad(service, name string) int {
	if c.previous == nil {
		return -1
	}
	if s := c.before[service]; s != nil {
		if b := s.Backend(name); b != nil {
			return b.Slot
		}
	}
	return -1
}

func (c *compiler) backend(path string, spec *BackendSpec, service *Service) (*Backend, error) {
	backend := &Backend{Name: spec.Name, Weight: defaultWeight, Mark: spec.Mark, Slot: -1, Service: service}
	if spec.Weight != nil {
		backend.Weight = *spec.Weight
	}
	c.keep(checkWeight(path, backend.Weight, c.fileHash))
	if backend.Action = spec.Action; backend.Refuses() {
		c.setState(backend)
		return backend, c.refusing(path, spec, service)
	}
	if spec.Port != nil {
		switch {
		case service.Mode != NAT:
			c.keep(wrong(path+".port", "remove it, or write mode: nat", "mode %s does not change ports", service.Mode))
		case *spec.Port < 1 || *spec.Port > 65535:
			c.keep(wrong(path+".port", "write 1 to 65535, or leave it out to keep the client's port", "%d is out of range", *spec.Port))
		}
		backend.Port = uint16(*spec.Port)
	}
	if err := c.backendAddresses(path, spec, backend); err != nil {
		return nil, err
	}
	switch {
	case service.Mode == Mark && spec.Mark == 0:
		return nil, wrong(path+".mark", "add the fwmark that your routing rule expects", "mode mark needs a mark")
	case service.Mode != Mark && spec.Mark != 0:
		return nil, wrong(path+".mark", "remove it, or write mode: mark", "mode %s sets no mark", service.Mode)
	}
	c.setState(backend)
	return backend, nil
}

// backendAddresses takes over the addresses and checks that each VIP's packets can reach the backend.
func (c *compiler) backendAddresses(path string, spec *BackendSpec, backend *Backend) error {
	service := backend.Service
	if !spec.Address.IsValid() {
		if service.Mode == Mark {
			return nil
		}
		return wrong(path+".address", "add the server's address, or its name as host", "mode %s needs an address", service.Mode)
	}
	first := spec.Address.Unmap()
	if err := checkUnicast(path+".address", first); err != nil {
		return err
	}
	backend.Address4, backend.Address6 = first, first
	if first.Is4() {
		backend.Address6 = spec.Address2
	} else {
		backend.Address4 = spec.Address2.Unmap()
	}
	if second := spec.Address2; second.IsValid() {
		if err := checkUnicast(path+".address2", second); err != nil {
			return err
		}
		if second.Unmap().Is4() == first.Is4() {
			return wrong(path+".address2", "write one IPv4 and one IPv6 address, or make it a backend of its own", "%s is of the same family as %s", second, first)
		}
	}
	if err := checkLoop(path, backend); err != nil {
		return err
	}
	if service.Mode == L3DSR || service.Mode == Mark || c.caps.CrossFamily && service.Mode == NAT {
		return nil
	}
	for _, vip := range service.VIPs {
		if _, ok := backend.Address(vip.Prefix.Addr().Is6()); !ok {
			remedy := "add an address of that family, or split the service by family"
			if service.Mode == NAT {
				remedy += "; --datapath udp alone translates between families"
			}
			return wrong(path+".address2", remedy, "the service has the VIP %s, the backend only %s", vip.Prefix, first)
		}
	}
	return nil
}

// checkLoop refuses a backend whose packets would come back to the balancer: its address, and in mode nat its port, are those
// of a VIP of its service.
func checkLoop(path string, backend *Backend) error {
	service := backend.Service
	if service.Mode == Mark {
		return nil
	}
	for _, vip := range service.VIPs {
		address, _ := backend.Address(vip.Prefix.Addr().Is6())
		switch {
		case !vip.Prefix.IsSingleIP() || vip.Prefix.Addr() != address:
		case backend.Port != 0 && (backend.Port < vip.First || backend.Port > vip.Last): // mode nat only
		default:
			return wrong(path+".address", "write the server's own address", "the backend is the VIP %s itself: packets would go in a loop", vip)
		}
	}
	return nil
}

func (c *compiler) health(path string, spec *ServiceSpec, service *Service) error {
	h := spec.Health
	if h == nil {
		return nil
	}
	path += ".health"
	if h.Type == noProbe {
		return wrong(path+".type", "add tcp, udp, http, coap_ping or stun_binding", "the probe has no type")
	}
	if h.Type != ProbeHTTP && (h.Path != "" || h.Host != "" || h.Status != 0) {
		return wrong(path, "remove path, host and status, or write type: http", "probe %s makes no HTTP request", h.Type)
	}
	if h.Type != ProbeUDP && h.Send != "" {
		return wrong(path+".send", "remove it, or write type: udp", "probe %s has its own request", h.Type)
	}
	if h.Tunnel && service.Mode != L3DSR {
		return wrong(path+".tunnel", "remove it, or write mode: l3dsr", "mode %s has no tunnel", service.Mode)
	}
	out := &Health{
		Probe:    h.Type,
		Tunnel:   h.Tunnel,
		Port:     uint16(h.Port),
		Interval: cmp.Or(h.Interval, 2*time.Second),
		Timeout:  cmp.Or(h.Timeout, min(time.Second, cmp.Or(h.Interval, 2*time.Second)/2)),
		Rise:     cmp.Or(h.Rise, 2),
		Fall:     cmp.Or(h.Fall, 3),
		Path:     cmp.Or(h.Path, "/"),
		Host:     h.Host,
		Status:   h.Status,
		Send:     []byte(h.Send),
		FailOpen: h.FailOpen == nil || *h.FailOpen,
	}
	switch {
	case h.Port < 0 || h.Port > 65535:
		return wrong(path+".port", "write 1 to 65535", "%d is out of range", h.Port)
	case out.Interval < 100*time.Millisecond || out.Interval > time.Hour:
		return wrong(path+".interval", "write 100ms to 1h, such as 2s", "%s is out of range", out.Interval)
	case out.Timeout < 10*time.Millisecond || out.Timeout >= out.Interval:
		return wrong(path+".timeout", "write at least 10ms and less than the interval", "%s does not fit the interval %s", out.Timeout, out.Interval)
	case out.Rise < 1 || out.Rise > 100:
		return wrong(path+".rise", "write 1 to 100", "%d is out of range", out.Rise)
	case out.Fall < 1 || out.Fall > 100:
		return wrong(path+".fall", "write 1 to 100", "%d is out of range", out.Fall)
	case h.Status != 0 && (h.Status < 100 || h.Status > 599):
		return wrong(path+".status", "write 100 to 599", "%d is no HTTP status", h.Status)
	case out.Path[0] != '/':
		return wrong(path+".path", "write /"+h.Path, "%q does not start with /", h.Path)
	case !visible(out.Path, "#") || badEscape(out.Path):
		return wrong(path+".path", "write other characters as % and two hex digits", "%q cannot stand in an HTTP request", h.Path)
	case !visible(out.Host, "#/?@\\"):
		return wrong(path+".host", "write a host name, with a port if need be", "%q is no host name", h.Host)
	}
	return c.healthTarget(path, service, out)
}

// visible reports whether text is printable ASCII without spaces and without any of those characters.
func visible(text, without string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune(without, r)
	})
}

// badEscape finds a % that two hex digits do not follow (RFC 3986 section 2.1).
func badEscape(path string) bool {
	for {
		_, rest, found := strings.Cut(path, "%")
		if !found {
			return false
		}
		if len(rest) < 2 || strings.Trim(rest[:2], "0123456789abcdefABCDEF") != "" {
			return true
		}
		path = rest
	}
}

// healthTarget checks that every backend has an address and port for probes.
func (c *compiler) healthTarget(path string, service *Service, out *Health) error {
	service.Health = out
	for _, backend := range service.Backends {
		if backend.Refuses() {
			continue
		}
		if !backend.Address4.IsValid() && !backend.Address6.IsValid() {
			return wrong(path, "give each backend an address, or remove health", "backend %q has no address to probe", backend.Name)
		}
		if !service.ProbeTarget(backend).IsValid() {
			return wrong(path+".port", "add the port to probe", "the VIPs and backend %q do not name a single port", backend.Name)
		}
	}
	return nil
}
