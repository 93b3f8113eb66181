package events

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/weir-lb/weir/api/v1"
)

const (
	maxEvents     = 256
	maxAttributes = 16
	maxText       = 256 // bytes of a message or of an attribute
	nameKey       = "event"
)

// Ring has the newest records of a process.
type Ring struct {
	mu     sync.Mutex
	events []v1.Event // the oldest at next, once there are maxEvents
	next   int
	number uint64 // of the newest
}

func (r *Ring) put(e *v1.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.number++
	e.Number = r.number
	if len(r.events) < maxEvents {
		r.events = append(r.events, *e)
		return
	}
	r.events[r.next] = *e
	r.next = (r.next + 1) % maxEvents
}

// List returns the records with numbers above after, the oldest first.
func (r *Ring) List(after uint64) v1.EventList {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := v1.EventList{Events: []v1.Event{}, Forgotten: r.number - uint64(len(r.events))}
	for i := range r.events {
		if e := r.events[(r.next+i)%len(r.events)]; e.Number > after {
			list.Events = append(list.Events, e)
		}
	}
	return list
}

// Keep returns a handler that passes records on to next and keeps them in the ring.
func Keep(next slog.Handler) (slog.Handler, *Ring) {
	ring := new(Ring)
	return &handler{next: next, ring: ring}, ring
}

// Named returns a handler that adds the name of each record as its attribute "event".
func Named(next slog.Handler) slog.Handler { return &handler{next: next, named: true} }

// RingOf returns the ring of a logger; nil: its records are not kept.
func RingOf(log *slog.Logger) *Ring {
	if kept, ok := log.Handler().(interface{ Ring() *Ring }); ok {
		return kept.Ring()
	}
	return nil
}

// handler keeps records or adds their names.
type handler struct {
	next  slog.Handler
	ring  *Ring // nil: not kept
	named bool
	attrs []slog.Attr // of the logger
	group string      // prefix of attributes, with a dot at its end
}

// Ring returns where the records are kept.
func (h *handler) Ring() *Ring { return h.ring }

// Enabled is that of the next handler.
func (h *handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// Handle keeps or names a record and passes it on.
func (h *handler) Handle(ctx context.Context, record slog.Record) error {
	if h.ring != nil {
		h.ring.put(h.eventOf(&record))
	}
	if h.named && !hasName(&record) {
		record = record.Clone()
		record.AddAttrs(slog.String(nameKey, Name(record.Message)))
	}
	return h.next.Handle(ctx, record)
}

func hasName(record *slog.Record) (found bool) {
	record.Attrs(func(a slog.Attr) bool {
		found = found || a.Key == nameKey
		return !found
	})
	return found
}

func (h *handler) eventOf(record *slog.Record) *v1.Event {
	e := &v1.Event{Time: record.Time, Level: record.Level.String(), Message: cut(record.Message)}
	add := func(prefix string, a slog.Attr) {
		switch {
		case prefix == "" && a.Key == nameKey:
			e.Name = cut(a.Value.String())
		case len(e.Attributes) < maxAttributes && !a.Equal(slog.Attr{}):
			if e.Attributes == nil {
				e.Attributes = map[string]string{}
			}
			e.Attributes[cut(prefix+a.Key)] = cut(a.Value.Resolve().String())
		}
	}
	for _, a := range h.attrs {
		add("", a)
	}
	record.Attrs(func(a slog.Attr) bool {
		add(h.group, a)
		return true
	})
	if e.Name == "" {
		e.Name = cut(Name(record.Message))
	}
	return e
}

// cut bounds a text, at the beginning of a character.
func cut(text string) string {
	if len(text) <= maxText {
		return strings.Clone(text)
	}
	end := maxText
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}

// WithAttrs adds attributes of all records.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	to := *h
	to.next, to.attrs = h.next.WithAttrs(attrs), h.attrs[:len(h.attrs):len(h.attrs)]
	for _, a := range attrs {
		a.Key = h.group + a.Key
		to.attrs = append(to.attrs, a)
	}
	return &to
}

// WithGroup puts attributes that follow below a name.
func (h *handler) WithGroup(name string) slog.Handler {
	to := *h
	to.next = h.next.WithGroup(name)
	if name != "" {
		to.group += name + "."
	}
	return &to
}
