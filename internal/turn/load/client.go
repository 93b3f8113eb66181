package load

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/pion/stun/v4"

	"github.com/weir-lb/weir/internal/turn/requests"
	"github.com/weir-lb/weir/internal/udpio"
)

// step is a request that a client makes of its server.
type step uint8

const (
	idle step = iota
	allocate
	bind
	refresh
	release
)

func (s step) String() string {
	return [...]string{"nothing", "Allocate", "ChannelBind", "Refresh", "Refresh with lifetime 0"}[s]
}

// client is one TURN client, or one plain UDP socket. Its requests are a state machine that never waits, so that one
// goroutine can run all of them. do waits; it is used before that goroutine runs.
type client struct {
	id     int
	link   link
	relay  netip.AddrPort
	config *Config

	auth requests.Auth

	// The request in progress.
	step    step
	request *stun.Message
	again   time.Time // time of the next retransmission
	pause   time.Duration
	end     time.Time // time at which it fails
	retries int
	after   []step // steps that follow

	due time.Time // of the next refresh
	err error     // why the server no longer has its allocation
}

const firstPause = 500 * time.Millisecond // RTO of RFC 8489 section 6.2.1

func openClient(config *Config, id int) (*client, error) {
	c := &client{id: id, config: config, request: stun.New()}
	c.auth.SetUser(config.User, config.Password)
	var err error
	if c.link, err = openLink(config, config.target(id)); err != nil {
		return nil, fmt.Errorf("client %d: %w", id, err)
	}
	return c, nil
}

// begin sends the first of steps; the others are sent as each is answered.
func (c *client) begin(now time.Time, steps ...step) error {
	c.step, c.after, c.retries = steps[0], steps[1:], 0
	c.end = now.Add(c.config.Timeout)
	return c.send(now)
}

// send builds the request again, with the latest nonce, and sends it.
func (c *client) send(now time.Time) error {
	r := requests.Request{Method: stun.MethodRefresh, Peer: c.config.destination(), Channel: requests.Channel, Lifetime: c.config.Lifetime}
	switch c.step {
	case allocate:
		r.Method = stun.MethodAllocate
	case bind:
		r.Method = stun.MethodChannelBind
	case release:
		r.Lifetime = 0
	}
	if err := r.Build(c.request, &c.auth); err != nil {
		return err
	}
	c.pause = firstPause
	c.again = now.Add(c.pause)
	c.write()
	return nil
}

func (c *client) write() {
	c.link.send([]udpio.Message{{Buf: c.request.Raw, N: len(c.request.Raw)}}) // if the kernel refuses it, it is retransmitted
}

// tick retransmits an unanswered request. It returns an error after the timeout.
func (c *client) tick(now time.Time) error {
	switch {
	case c.step == idle:
		return nil
	case !now.Before(c.end):
		err := fmt.Errorf("client %d: %v was not answered by %v in %v", c.id, c.step, c.config.Server, c.config.Timeout)
		c.step = idle
		return err
	case !now.Before(c.again):
		c.pause *= 2
		c.again = now.Add(c.pause)
		c.write()
	}
	return nil
}

// answer handles a STUN message of the server. A message that does not answer the request in progress is ignored.
func (c *client) answer(b []byte, now time.Time) error {
	if c.step == idle {
		return nil
	}
	m, outcome := requests.Response(b, c.request, &c.auth)
	switch outcome {
	case requests.Granted:
		return c.success(m, now)
	case requests.Forged:
		return c.fail(errors.New("the answer's MESSAGE-INTEGRITY is wrong"))
	case requests.Refused:
		return c.refused(m, now)
	}
	return nil
}

func (c *client) success(m *stun.Message, now time.Time) error {
	if c.step == allocate {
		g, err := requests.ParseGrant(m)
		if err != nil {
			return c.fail(err)
		}
		c.relay = g.Relay
	}
	c.due = now.Add(c.config.refreshInterval())
	c.step = idle
	if len(c.after) > 0 {
		return c.begin(now, c.after...)
	}
	return nil
}

func (c *client) refused(m *stun.Message, now time.Time) error {
	code, reason := requests.ErrorCode(m)
	again := code == 401 && !c.auth.Challenged() || code == 438
	if c.retries++; !again || c.retries > 3 {
		return c.fail(fmt.Errorf("%d %s", code, reason))
	}
	if !c.auth.Challenge(m) {
		return c.fail(fmt.Errorf("%d without REALM or NONCE", code))
	}
	return c.send(now)
}

func (c *client) fail(err error) error {
	err = fmt.Errorf("client %d: %v at %v: %w", c.id, c.step, c.config.Server, err)
	c.step = idle
	return err
}

// do sends requests and waits for their answers.
func (c *client) do(ctx context.Context, steps ...step) error {
	now := time.Now()
	if err := c.begin(now, steps...); err != nil {
		return err
	}
	messages := udpio.NewMessages(1, 2048)
	for c.step != idle {
		if err := ctx.Err(); err != nil {
			return err
		}
		wait := min(max(c.again.Sub(now), time.Millisecond), 100*time.Millisecond) // ctx is checked in between
		var failed error
		n, err := c.link.receive(messages, wait, func(b []byte) {
			now = time.Now()
			failed = errors.Join(failed, c.answer(b, now))
		})
		if err != nil && !errors.Is(err, udpio.ErrWoken) {
			n = 0 // such as ECONNREFUSED: the server may be about to start
			if err := sleep(ctx, 10*time.Millisecond); err != nil {
				return err
			}
		}
		if n == 0 {
			now = time.Now()
			failed = errors.Join(failed, c.tick(now))
		}
		if failed != nil {
			return failed
		}
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
