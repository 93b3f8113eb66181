package lb

// decap compiles the section of that name.
func (c *compiler) decap(spec *Spec, snapshot *Snapshot) (err error) {
	s := spec.Decap
	if s == nil {
		return nil
	}
	if !c.caps.Decap {
		return wrong("decap", "use --datapath ebpf, or remove decap", "data path %s does not take tunnels off", c.caps.Name)
	}
	if len(s.Addresses) == 0 {
		return wrong("decap.addresses", "add the address of this machine that the other balancers send their tunnels to, or remove decap", "there is no address")
	}
	if len(s.From) == 0 {
		return wrong("decap.from", "add the outer sources of the balancers that send the tunnels", "there is no source: who may send through a tunnel can use the address of any client")
	}
	out := &Decap{}
	if out.Addresses, err = c.prefixes("decap.addresses", s.Addresses); err != nil {
		return err
	}
	if out.From, err = c.prefixes("decap.from", s.From); err != nil {
		return err
	}
	if !familiesMeet(out.Addresses, out.From) {
		return wrong("decap.from", "write sources of the family that the addresses have", "no tunnel can have such a source and such a destination: they are of different families")
	}
	snapshot.Decap = out
	return nil
}
