package snatplan

import "time"

// connect is a socket's connect call: the client's own stages first, then the first SYN.
func (sim *simulation) connect(replica uint32, dst uint16) {
	sim.run.Attempts++
	if !sim.acquire(replica, dst, 0, sim.local) {
		sim.run.Errors++
		sim.again(replica, dst)
		return
	}
	sim.waiting++
	sim.syn(event{replica: replica, dst: dst})
}

// syn sends a SYN along the path. Without room it vanishes, and the kernel sends it again.
func (sim *simulation) syn(e event) {
	if e.arg < synTries && sim.acquire(e.replica, e.dst, sim.local, len(sim.counters)) {
		sim.waiting--
		sim.opened(e)
		return
	}
	if e.arg >= synTries { // 127 s
		sim.waiting--
		sim.run.TimedOut++
		sim.giveBack(e.replica, e.dst, 0, sim.local)
		sim.again(e.replica, e.dst)
		return
	}
	e.at, e.what = sim.now+uint64(time.Second)<<e.arg, retry
	e.arg++
	sim.queue.push(e)
}

// again is what a client that keeps its connections does after a failure: the same elsewhere, later.
func (sim *simulation) again(replica uint32, dst uint16) {
	if sim.s.Traffic.Policy != Keep {
		return
	}
	dst = uint16((int(dst) + 1) % sim.s.Destinations)
	sim.queue.push(event{at: sim.now + uint64(reconnectFailed), what: connect, replica: replica, dst: dst})
}

func (sim *simulation) opened(e event) {
	sim.countOpened(e.arg)
	t := sim.s.Traffic
	if t.Lifetime == 0 {
		return
	}
	life := float64(t.Lifetime)
	if t.Spread == "exponential" {
		life *= sim.random.ExpFloat64()
	}
	how := byFIN
	if t.RST+t.Abandoned > 0 {
		switch u := sim.random.Float64(); {
		case u < t.RST:
			how = byRST
		case u < t.RST+t.Abandoned:
			how = abandoned
		}
	}
	sim.queue.push(event{at: sim.now + uint64(life), what: ends, replica: e.replica, dst: e.dst, arg: uint8(how)})
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

// acquire takes one place in each of the stages from first to last, or none.
func (sim *simulation) acquire(replica uint32, dst uint16, first, last int) bool {
	r, d := int(replica), int(dst)
	node := r % sim.s.Nodes
	for i := first; i < last; i++ {
		c := &sim.counters[i]
		where, owner := c.at(r, node, d)
		if c.wantsMore(where, owner) {
			c.grows[owner] = true
			sim.queue.push(event{at: sim.now + uint64(c.growing.delay), what: grow, replica: uint32(owner), arg: uint8(i)})
		}
		if !c.free(where, owner) {
			c.result.Refused++
			return false
		}
	}
	for i := first; i < last; i++ {
		where, _ := sim.counters[i].at(r, node, d)
		sim.counters[i].take(where)
	}
	return true
}

// giveBack frees stages that a connection took and never used.
func (sim *simulation) giveBack(replica uint32, dst uint16, first, last int) {
	r, d := int(replica), int(dst)
	for i := first; i < last; i++ {
		where, _ := sim.counters[i].at(r, r%sim.s.Nodes, d)
		sim.counters[i].inactive(where)
		sim.counters[i].idleAgain(where)
	}
}

// close ends a connection; each stage keeps its ports as long as the way to end asks for.
func (sim *simulation) close(replica uint32, dst uint16, how ending) {
	sim.held--
	sim.letGo(replica, dst, how)
}

func (sim *simulation) letGo(replica uint32, dst uint16, how ending) {
	sim.run.Closed++
	r, d := int(replica), int(dst)
	if how != abandoned { // nobody tells the stages: they believe in it until it has been idle long enough
		for i := range sim.counters {
			where, _ := sim.counters[i].at(r, r%sim.s.Nodes, d)
			sim.counters[i].inactive(where)
		}
	}
	for _, g := range sim.byEnd[how] {
		e := event{at: sim.now + sim.groups[g].after, what: release, replica: replica, dst: dst, arg: uint8(g)}
		if sim.groups[g].after == 0 {
			sim.release(e)
			continue
		}
		sim.queue.push(e)
	}
}

func (sim *simulation) release(e event) {
	g := &sim.groups[e.arg]
	r, d := int(e.replica), int(e.dst)
	for _, i := range g.stages {
		c := &sim.counters[i]
		where, _ := c.at(r, r%sim.s.Nodes, d)
		c.idleAgain(where)
		if g.how == abandoned {
			c.inactive(where)
		}
	}
}

// take samples the series at a moment.
func (sim *simulation) take(at uint64) {
	busy := int64(0)
	most := int64(-1)
	for i := range sim.counters {
		if c := &sim.counters[i].result; c.Refused > most {
			most, busy = c.Refused, c.nowBusy
		}
	}
	series := &sim.run.Series
	series.Second = append(series.Second, float64(at)/1e9)
	series.Held = append(series.Held, sim.held)
	series.Waiting = append(series.Waiting, sim.waiting)
	series.Busy = append(series.Busy, busy)
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
		run.Stages = append(run.Stages, sim.counters[i].result)
	}
	return *run
}
