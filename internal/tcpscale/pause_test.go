package tcpscale

import (
	"testing"
	"time"
)

// The client is stopped for 5 s: no one is lost, every beat that was due counts from when it was due, and connections
// whose beat was due later are not late.
func TestLatencyCountsFromTheIntendedTime(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	for _, c := range []struct {
		period       time.Duration
		late, unsent uint64 // of 100 connections, at least, at most: those with a beat due in the stop
		lateAtMost   uint64
	}{
		{time.Second, 400, 300, 600},
		{20 * time.Second, 5, 0, 60},
	} {
		p := newPair(t, func(config *ClientConfig, _ *ServerConfig) { config.Heartbeat = c.period })
		p.up()
		p.pass(2*c.period, p.client, p.server)
		p.client.recorded()
		sent := p.client.count.beats.Sent
		from := p.now + tick
		p.now += 5 * time.Second
		p.client.stood(from, p.now)
		p.until("echoes", func() bool { return p.client.count.beats.Received == p.client.count.beats.Sent }, p.client, p.server)
		p.pass(c.period, p.client, p.server)
		late, most := uint64(0), time.Duration(0)
		for _, pair := range p.client.recorded().RTT {
			if d := time.Duration(pair[0]); d > 500*time.Millisecond {
				late, most = late+uint64(pair[1]), max(most, d)
			}
		}
		b := &p.client.count.beats
		if b.Sent == sent || p.client.count.totals.Lost != 0 || most < 4*time.Second || late < c.late || late > c.lateAtMost || b.Unsent < c.unsent || b.Unsent > late {
			t.Errorf("period %v: lost %d, most %v, %d late, %d unsent, %d sent", c.period, p.client.count.totals.Lost, most, late, b.Unsent, b.Sent-sent)
		}
	}
}

// Who is judged by silence, or waits for an answer, does not pay for a stop of ours.
func TestAStopIsNobodysSilence(t *testing.T) {
	p := newPair(t, func(c *ClientConfig, s *ServerConfig) { s.Files = 60 })
	p.until("the server is full", func() bool {
		return p.server.count.connections.Established == 60 && p.client.count.connections.Unanswered == 40
	}, p.client, p.server)
	from := p.now + tick
	p.now += time.Hour
	p.client.stood(from, p.now)
	p.server.stood(from, p.now)
	p.poll(p.client)
	p.poll(p.server)
	if c, s := &p.client.count, &p.server.count; c.totals.Lost+c.totals.Failed+s.totals.Evicted != 0 {
		t.Errorf("after an hour's stop: client %+v %v, server %+v", c.totals, c.failures, s.totals)
	}
	p.serverStands(3500 * time.Millisecond)
	if c := &p.client.count; c.failures[Hung] < 60 {
		t.Errorf("silent for 3.5 s after a stop: %+v %v", c.totals, c.failures)
	}
}

// Void from a stop of more than a second, or from more than one in a hundred and a second in all.
func TestVoid(t *testing.T) {
	for _, c := range []struct {
		name            string
		every, gap, run time.Duration // a gap each time; every hour: one
		void            bool
	}{
		{"quiet", 20 * time.Second, 150 * time.Millisecond, time.Minute, false},
		{"one stop of 2 s", time.Hour, 2 * time.Second, time.Hour, true},
		{"0.9 s once", time.Hour, 900 * time.Millisecond, time.Minute, false},
		{"a tenth of the time", 5 * time.Second, 500 * time.Millisecond, time.Minute, true},
		{"half a percent of an hour", 100 * time.Second, 500 * time.Millisecond, time.Hour, false},
	} {
		var clock loopClock
		now := time.Duration(0)
		for next := c.every; now < c.run; {
			if now += tick; now >= next || clock.late == 0 && c.every == time.Hour {
				now, next = now+c.gap, now+c.every
			}
			from, stop := clock.at(now, tick)
			if stop != (now-from > time.Second) {
				t.Errorf("%s: at %v stopped %v since %v", c.name, now, stop, from)
			}
		}
		if got := clock.void(c.run); (got != "") != c.void {
			t.Errorf("%s: %q, late %v", c.name, got, clock.late)
		}
	}
}
