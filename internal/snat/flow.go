package snat

import "math/bits"

// connect is a socket's connect call: the client's own stages first, then the first SYN.
func (sim *simulation) connect(c conn) {
	sim.run.Attempts++
	if !sim.acquire(c, 0, sim.local) {
		sim.run.Errors++
		sim.again(c)
		return
	}
	sim.waiting++
	sim.syn(c.through(sim.pickServer()), 0)
}

// pickServer is the turn of a connection at the server nodes and servers, which its SYNs keep: a balancer counts, or hashes.
func (sim *simulation) pickServer() uint32 {
	if sim.turns == 1 {
		return 0
	}
	if sim.s.Traffic.Balance == "random" {
		return sim.random.Uint32N(sim.turns)
	}
	turn := sim.turn
	if sim.turn++; sim.turn == sim.turns {
		sim.turn = 0
	}
	return turn
}

// syn sends a SYN along the path. Without room it vanishes, and the kernel sends it again; no program sends a UDP packet again.
func (sim *simulation) syn(c conn, try uint8) {
	switch {
	case try < synTries && sim.acquire(c, sim.local, len(sim.counters)):
		sim.waiting--
		sim.opened(c, try)
	case try >= synTries || sim.s.Protocol == UDP: // 127 s
		sim.waiting--
		sim.run.TimedOut++
		sim.giveBack(c)
		sim.again(c)
	default:
		sim.timeline.append(sim.to.retries[try], sim.now, c)
	}
}

// again is what a client that keeps its connections does after a failure: the same elsewhere, later.
func (sim *simulation) again(c conn) {
	if sim.s.Traffic.Policy == Keep {
		sim.timeline.append(sim.to.failed, sim.now, newConn(c.replica(), (c.dst()+1)%sim.s.Destinations))
	}
}

// opened has a connection's lifetime begin.
func (sim *simulation) opened(c conn, try uint8) {
	sim.countOpened(try)
	switch t := sim.s.Traffic; {
	case t.Lifetime == 0:
	case t.Spread == "fixed":
		sim.timeline.append(sim.to.opened, sim.now, c)
	default:
		sim.live = append(sim.live, c)
		sim.nextClose()
	}
}

// nextClose says when the next connection of those that live ends. Exponential lifetimes have no memory: at any moment each
// of n connections is as likely to be the next, and the time until then is exponential with an n-th of the mean.
func (sim *simulation) nextClose() {
	sim.closeAt = never
	if n := len(sim.live); n > 0 {
		sim.closeAt = sim.now + uint64(sim.random.ExpFloat64()*float64(sim.s.Traffic.Lifetime)/float64(n))
	}
}

// close ends one of the connections that live. Which one is the next was drawn at the previous close, so that the memory it
// stands in is on its way meanwhile.
func (sim *simulation) close() {
	i, last := sim.pick(), len(sim.live)-1
	c := sim.live[i]
	sim.live[i] = sim.live[last]
	sim.live = sim.live[:last]
	if sim.draw = sim.random.Uint64(); last > 0 {
		sim.warm = sim.live[sim.pick()]
	}
	sim.nextClose()
	sim.ended(c)
}

// pick is the draw as an index of live.
func (sim *simulation) pick() int {
	i, _ := bits.Mul64(sim.draw, uint64(len(sim.live)))
	return int(i)
}

// ended is the end of a connection's lifetime.
func (sim *simulation) ended(c conn) {
	how, t := byFIN, sim.s.Traffic
	if t.RST+t.Abandoned > 0 {
		switch u := sim.random.Float64(); {
		case u < t.RST:
			how = byRST
		case u < t.RST+t.Abandoned:
			how = abandoned
		}
	}
	sim.held--
	sim.letGo(c, how)
	if t.Policy == Keep {
		sim.timeline.append(sim.to.lost, sim.now, newConn(c.replica(), c.dst()))
	}
}

func (sim *simulation) countOpened(tries uint8) {
	sim.held++
	sim.run.Peak = max(sim.run.Peak, sim.held)
	sim.run.Opened++
	sim.run.WaitedFor[tries]++
	if tries > 0 {
		sim.run.Delayed++
	}
	if sim.now < uint64(sim.s.Traffic.Duration)/2 {
		sim.half++
	}
}

// locate says where a connection is counted. It fills in p instead of returning it: copying six words that were just written
// one by one costs more than everything else here.
func (sim *simulation) locate(c conn, p *place) {
	p.replica, p.dst = c.replica(), c.dst()
	p.node = int(uint32(p.replica) % uint32(sim.s.Nodes)) // a division of 64 bits takes twice as long
	p.address = p.dst
	if sim.s.DestinationIPs < sim.s.Destinations {
		p.address = p.dst % sim.s.DestinationIPs
	}
	if via := uint32(c.via()); via > 0 {
		nodes, servers := uint32(sim.s.ServerNodes), uint32(sim.s.Servers)
		p.serverNode, p.server = int(via%nodes), int(via/nodes%servers)
	}
}

// acquire takes one place in each of the stages from first to last, or none.
func (sim *simulation) acquire(who conn, first, last int) bool {
	var p place
	sim.locate(who, &p)
	for i := first; i < last; i++ {
		c := &sim.counters[i]
		where := c.at(&p)
		if c.wantsMore(where, p.node) {
			c.grows[p.node] = true
			sim.timeline.append(sim.to.grown[i], sim.now, newConn(p.node, 0))
		}
		if !c.free(where, p.node) {
			c.refuse(sim.now)
			return false
		}
		sim.taken[i] = where
	}
	for i := first; i < last; i++ {
		sim.counters[i].take(sim.taken[i])
	}
	return true
}

// giveBack frees the client's own stages, which a connection took and never used.
func (sim *simulation) giveBack(who conn) {
	var p place
	sim.locate(who, &p)
	for i := range sim.local {
		where := sim.counters[i].at(&p)
		sim.counters[i].inactive(where)
		sim.counters[i].idleAgain(where)
	}
}

// letGo ends a connection; each stage keeps its ports as long as the way to end requires.
func (sim *simulation) letGo(who conn, how ending) {
	sim.run.Closed++
	if how != abandoned { // no packet ends it at the stages: they keep it until it has been idle long enough
		var p place
		sim.locate(who, &p)
		for i := range sim.counters {
			c := &sim.counters[i]
			c.inactive(c.at(&p))
		}
	}
	for _, g := range sim.atOnce[how] {
		sim.release(who, uint8(g))
	}
	if sim.holds[how] {
		sim.timeline.append(sim.to.closed[how], sim.now, who)
	}
}

func (sim *simulation) release(who conn, group uint8) {
	g := &sim.groups[group]
	var p place
	sim.locate(who, &p)
	for _, i := range g.forget {
		c := &sim.counters[i]
		c.inactive(c.at(&p))
	}
	for _, i := range g.free {
		c := &sim.counters[i]
		c.idleAgain(c.at(&p))
	}
}

// take samples the series at a moment.
func (sim *simulation) take(at uint64) {
	for i := range sim.counters {
		sim.counters[i].sample()
	}
	series := &sim.run.Series
	series.Second = append(series.Second, float64(at)/1e9)
	series.Held = append(series.Held, sim.held)
	series.Waiting = append(series.Waiting, sim.waiting)
	series.Tried = append(series.Tried, sim.run.Attempts)
	series.Opened = append(series.Opened, sim.run.Opened)
	series.Failed = append(series.Failed, sim.run.TimedOut+sim.run.Errors)
	sim.next = at + sim.sample
}

func (sim *simulation) finish() Run {
	run := &sim.run
	run.Name, run.Seed, run.Virtual, run.Last = sim.s.Name, sim.s.Traffic.Seed, sim.s.Traffic.Duration.Seconds(), sim.held
	run.OpenPerSecond = float64(run.Opened-sim.half) / (run.Virtual / 2)
	later := run.Series.Held[len(run.Series.Held)/2:]
	run.Lowest = later[0]
	for _, n := range later {
		run.Lowest = min(run.Lowest, n)
		run.Mean += float64(n) / float64(len(later))
	}
	for i := range sim.counters {
		c := &sim.counters[i]
		c.result.Fullest = int64(c.most)
		if at := c.result.FirstRefused; at != nil && (run.BrokeAt == nil || *at < *run.BrokeAt) {
			run.BrokeFirst, run.BrokeAt = c.name, at
		}
		run.Stages = append(run.Stages, c.result)
	}
	return *run
}
