package lb

// setState sets what the overrides say of a backend.
func (c *compiler) setState(backend *Backend) {
	target := Target{backend.Service.Name, backend.Name}
	override, from := c.overrides.Of(target)
	if override == OverrideDown && (from == FromHealth || from == FromDatapath) && backend.Service.stays {
		override = OverrideDrain
	}
	backend.Failing = c.overrides.From(target, FromOperator) != OverrideUp &&
		(c.overrides.From(target, FromHealth) == OverrideDown || c.overrides.From(target, FromDatapath) == OverrideDown)
	switch override {
	case OverrideDrain:
		backend.State = Draining
	case OverrideDown:
		backend.State = Down
	}
}

// refusing checks a backend that stands for no server.
func (c *compiler) refusing(path string, spec *BackendSpec, service *Service) error {
	for _, key := range []struct {
		name string
		set  bool
	}{
		{"address", spec.Address.IsValid()},
		{"host", spec.Host != ""},
		{"address2", spec.Address2.IsValid()},
		{"port", spec.Port != nil},
		{"nodes", len(spec.Nodes) > 0},
		{"mark", spec.Mark != 0},
		{"admin", spec.Admin != ""},
	} {
		if key.set {
			return wrong(path+"."+key.name, "remove it, or remove action", "a backend with action %s stands for no server", spec.Action)
		}
	}
	switch {
	case spec.Action != ActReject:
	case service.Mode == Mark:
		if service.NoBackendMark == DropMark {
			return wrong(path+".action", "add no_backend_mark to the service, or write action: drop", "in mode mark a rule rejects what has the no_backend_mark, and there is none")
		}
	case !c.caps.Reject:
		return c.refuse(path+".action", "write action: drop", "cannot answer what it refuses")
	}
	return nil
}
