package node

import (
	"bytes"
	"strconv"
	"sync"
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/coap/resource"
)

// extended holds what clients leave in the resources of Californium's extended plugtest server. The listeners of a Node share it;
// its methods run on any worker.
type extended struct {
	clock func() time.Time
	start time.Time
	delay bool // /echo takes delay=

	mu       sync.Mutex // guards what follows
	receives receives
	kept     echoStore

	topic   resource.Topic // of /echo/*
	reverse reverseCounts
	watch   watchCounts
}

func newExtended(clock func() time.Time, delay bool) *extended {
	e := &extended{clock: clock, start: clock(), delay: delay}
	e.receives.devices, e.kept.entries = map[string]int32{}, map[string]int32{}
	return e
}

// add adds the resources to a listener's tree.
func (e *extended) add(t *resource.Tree) {
	t.Add("/requests", &resource.Resource{Attributes: titled("0 50 60", "receive test: dev, rid, ep, rlen"), Post: e.serveRequests})
	t.Add("/reverse-request", &resource.Resource{
		Attributes: titled("0 42", "requests of the server: req, res"), Post: func(r *resource.Request) { owner(r.Session).core.serveReverse(r) }, Repeatable: true,
	})
	t.Add("/reverse-observe", &resource.Resource{
		Attributes: titled("0 42", "observations by the server: obs, res, timeout"), Post: func(r *resource.Request) { owner(r.Session).core.serveWatch(r) }, Repeatable: true,
	})
	t.Add("/echo", &resource.Resource{
		Attributes: titled("0 42 40", "echoes a POST: rlen, ack, delay, keep, id"), Post: e.serveEcho, Get: e.listEchoes, Below: true, Delete: e.deleteEcho,
		Topic: &e.topic,
	})
	for _, name := range []string{"telemetry", "event"} {
		publish := func(r *resource.Request) {
			if format, ok := r.Accepts(message.Text, message.JSON, message.OctetStream); ok {
				text := name + " published!"
				if format == message.JSON {
					text = `"` + text + `"`
				}
				r.Answer(message.Changed, format, []byte(text))
			}
		}
		t.Add("/"+name, &resource.Resource{Hidden: true, Post: publish, Put: publish})
	}
}

// argument is one query of a request.
type argument struct {
	name, value string
	raw         []byte
}

// queries returns the queries of a request.
func queries(r *resource.Request) (all []argument) {
	for options := r.Message.Options(); options.Next() && options.ID() <= message.URIQuery; {
		if options.ID() == message.URIQuery {
			name, value, _ := bytes.Cut(options.Value(), []byte{'='})
			all = append(all, argument{string(name), string(value), options.Value()})
		}
	}
	return all
}

// numberOf reads a decimal number of a query.
func numberOf(text string, low, high int) (int, bool) {
	n, err := strconv.Atoi(text)
	return n, err == nil && low <= n && n <= high
}
