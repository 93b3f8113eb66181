package move

// Routes says where the records of each shard go. It is a value.
type Routes struct {
	Owner  [Shards]uint8 // the node to which other nodes send them
	Here   [Shards]bool  // sessions of the shard may be on this node
	Onward [Shards]int16 // where a session that is not here may be; -1: nowhere
}

// HomeRoutes are those of a node, as long as nothing was ever moved.
func HomeRoutes(self uint8) *Routes {
	n := New(Config{Self: self})
	r, _ := n.Routes()
	return &r
}

// Routes returns the routes. changed: they are not those of the last call.
func (n *Node) Routes() (r Routes, changed bool) {
	if n.fresh {
		return n.routes, false
	}
	n.fresh = true
	for i := range r.Owner {
		r.Owner[i], r.Here[i], r.Onward[i] = n.owners[i].Owner, n.held[i], int16(n.onward(uint8(i)))
	}
	changed = r != n.routes
	n.routes = r
	return r, changed
}

// onward returns where a session may be that is not here: at the owner; or, if that is this node, at the node that it moves the shard
// to, or has moved a part of it to, or at the home, which makes sessions before it has the shard back.
func (n *Node) onward(shard uint8) int {
	if owner := n.owners[shard].Owner; owner != n.cfg.Self {
		return int(owner)
	}
	if t := n.out; t != nil && t.shard == shard {
		return int(t.to)
	}
	if to := n.targets[shard]; to >= 0 && n.peers[to] != nil && n.peers[to].up {
		return to
	}
	if p := n.peers[shard]; shard != n.cfg.Self && p != nil && p.up {
		return int(shard)
	}
	return -1
}

// Owners lists the shards that were ever moved, with their owners.
func (n *Node) Owners() (all []Entry) {
	for _, e := range n.owners {
		if e.Version > 0 {
			all = append(all, e)
		}
	}
	return all
}

// Held lists the shards of other nodes of which sessions may be here.
func (n *Node) Held() (all []uint8) {
	for i, held := range n.held {
		if held && uint8(i) != n.cfg.Self {
			all = append(all, uint8(i))
		}
	}
	return all
}
