package node

import (
	"math/rand/v2"
	"strings"
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/coap/resource"
)

const separateDelay = time.Second // of /large-separate

// maxAge is how long a representation of /obs and its siblings stays fresh, in seconds.
func (p *plugtest) maxAge() uint32 { return uint32(max(1, p.every/time.Second)) }

// period is the time that /obs shows: it changes with each notification, not while a client fetches blocks.
func (p *plugtest) period() time.Time { return p.clock().Truncate(p.every) }

// topic is one of a resource that changes with each period.
func (p *plugtest) topic(confirmable bool) *resource.Topic {
	t := &resource.Topic{Every: p.every, Confirmable: confirmable}
	p.topics = append(p.topics, t)
	return t
}

// addObserved adds the observable resources. Listeners of a Node have topics of their own: a change reaches all of them.
func (p *plugtest) addObserved(t *resource.Tree) {
	observed := attributes("rt", "observe", "obs", "")
	for i, path := range []string{"/obs", "/obs-non"} {
		t.Add(path, p.observable(i, p.topic(i == 0)))
	}
	t.Add("/obs-large", &resource.Resource{Attributes: append(attributes("ct", "0"), observed...), Topic: p.topic(true), Get: func(r *resource.Request) {
		rule := strings.Repeat("-", 64)
		now := p.period().Format(time.TimeOnly)
		r.MaxAge(p.maxAge())
		answerText(r, rule+now+strings.Repeat(" ", 32-len(now))+rule)
	}})
	for i, path := range []string{"/obs-pumping", "/obs-pumping-non"} {
		t.Add(path, &resource.Resource{Attributes: observed, Topic: p.topic(i == 0), Get: func(r *resource.Request) {
			r.MaxAge(p.maxAge())
			answerText(r, p.pumping())
		}})
	}
	t.Add("/obs-reset", &resource.Resource{Post: p.resetObserved})
}

// pumping is a text whose length changes with each period: half of the time 84 bytes, a quarter 164, a quarter 8.
func (p *plugtest) pumping() string {
	now := p.period()
	text := now.Format(time.TimeOnly)
	switch random := rand.New(rand.NewPCG(uint64(now.Unix()), 1)).IntN(4); random { //nolint:gosec // a length, no secret
	case 0:
		return text
	case 1:
		return text + strings.Repeat("*", 156)
	}
	return text + strings.Repeat("*", 76)
}

// observable is /obs or /obs-non: the time, or for one period what a client has put.
func (p *plugtest) observable(i int, topic *resource.Topic) *resource.Resource {
	current := func() stored {
		if s := p.obs[i]; s.exists && p.clock().Sub(p.changed[i]) < p.every {
			return s
		}
		return stored{[]byte(p.period().Format(time.TimeOnly)), message.Text, true}
	}
	return &resource.Resource{
		Attributes: attributes("rt", "observe", "obs", ""), Topic: topic,
		Get: p.locked(func(r *resource.Request) {
			s := current()
			r.MaxAge(p.maxAge())
			s.answer(r)
		}),
		Put: p.locked(func(r *resource.Request) {
			s, ok := put(r)
			if !ok {
				return
			}
			if s.format != current().format { // observers cannot take the new format (RFC 7641 section 4.2)
				p.each(i, func(t *resource.Topic) { t.End(message.NotAcceptable) })
			}
			p.obs[i], p.changed[i] = s, p.clock()
			p.each(i, (*resource.Topic).Changed)
			r.Done(message.Changed)
		}),
		Delete: p.locked(func(r *resource.Request) {
			p.obs[i] = stored{}
			p.each(i, func(t *resource.Topic) { t.End(message.NotFound) })
			r.Done(message.Deleted)
		}),
	}
}

// topicsPerTree is how many topics addObserved makes, in its order.
const topicsPerTree = 5

// each calls f for the topics of one resource, of every listener.
func (p *plugtest) each(number int, f func(*resource.Topic)) {
	for i := number; i < len(p.topics); i += topicsPerTree {
		f(p.topics[i])
	}
}

// resetObserved ends all observations, silently or with 4.04, for requests with the public word.
func (p *plugtest) resetObserved(r *resource.Request) {
	if string(r.Body) != sesame {
		r.Error(message.Forbidden, "")
		return
	}
	code := message.Empty
	if query, ok := r.Message.Option(message.URIQuery); ok && string(query) == "notfound" {
		code = message.NotFound
	}
	for _, t := range p.topics {
		t.End(code)
	}
	r.Done(message.Changed)
}
