package control

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/control/tree"
)

// Bounds of what is remembered of past configurations.
const (
	maxConfigEvents     = 256
	maxEventDifferences = 100
	maxEventBytes       = 32 << 10 // of the differences of one event: a client reads lines of 64 KiB
	maxCompared         = 64 << 10 // bytes of a file whose differences are found at each reload
)

// events are the generations of the configuration, the newest of which are remembered.
type events struct {
	generation uint64
	process    string // distinguishes the etags of this process from those of others
	ring       []v1.ConfigEvent
	news       chan struct{} // closed and replaced at each event
	watchers   int
}

func newEvents() events {
	id := make([]byte, 4)
	_, _ = rand.Read(id) // it never fails
	return events{process: hex.EncodeToString(id), news: make(chan struct{})}
}

func (e *events) etag() string { return fmt.Sprintf("%d-%s", e.generation, e.process) }

// eventLocked counts and remembers a configuration that has come into force.
func (l *Loop) eventLocked(c change) {
	e := &l.doc.events
	e.generation++
	event := v1.ConfigEvent{Generation: e.generation, ETag: e.etag(), At: time.Now(), By: c.by, Action: c.action, Dropped: c.dropped}
	if c.differences != nil {
		event.Differences, event.More = shownDifferences(c.differences, fitting(c.differences))
	}
	if e.ring = append(e.ring, event); len(e.ring) > maxConfigEvents {
		e.ring = append([]v1.ConfigEvent(nil), e.ring[1:]...)
	}
	close(e.news)
	e.news = make(chan struct{})
	paths := []string{}
	for _, d := range event.Differences[:min(len(event.Differences), 10)] {
		paths = append(paths, d.Path)
	}
	l.log.Info("configuration changed", "by", c.by, "action", c.action, "config_generation", e.generation,
		"changes", len(c.differences), "paths", paths, "unsaved", l.doc.changed())
	for _, path := range c.dropped {
		l.log.Warn("run-time change ended; the file has changed the object", "path", path, "config_generation", e.generation)
	}
}

// fitting returns how many differences an event has.
func fitting(all []tree.Difference) int {
	size := 0
	for i, d := range all[:min(len(all), maxEventDifferences)] {
		if size += len(d.Path) + len(tree.Text(d.Old)) + len(tree.Text(d.New)); size > maxEventBytes {
			return i
		}
	}
	return maxEventDifferences
}

// after returns the events after a generation, and a channel that is closed when there is another. The first one has the number of those
// that are forgotten.
func (e *events) after(since uint64) ([]v1.ConfigEvent, <-chan struct{}) {
	var list []v1.ConfigEvent
	for _, event := range e.ring {
		if event.Generation > since {
			list = append(list, event)
		}
	}
	if len(list) > 0 && list[0].Generation > since+1 {
		list[0].Missed = list[0].Generation - since - 1
	}
	return list, e.news
}

// WatchConfig writes each configuration that comes into force, until ctx ends or a write fails: those after the generation since, as far
// as they are remembered; since 0 begins with the one in force.
func (l *Loop) WatchConfig(ctx context.Context, since uint64, write func(line any, flush bool) error) error {
	l.mu.Lock()
	l.doc.events.watchers++
	if now := l.doc.events.generation; since > now {
		l.mu.Unlock()
		return fmt.Errorf("since %d: configuration %d is in force; the numbers begin at 1 when the process starts", since, now)
	} else if since == 0 && now > 0 {
		since = now - 1
	}
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		l.doc.events.watchers--
		l.mu.Unlock()
	}()
	for {
		l.mu.Lock()
		list, news := l.doc.events.after(since)
		l.mu.Unlock()
		for i, event := range list {
			if err := write(event, i == len(list)-1); err != nil {
				return err
			}
			since = event.Generation
		}
		select {
		case <-ctx.Done():
			return nil
		case <-news:
		}
	}
}

// loadedLocked records that a file has come into force without run-time changes.
func (l *Loop) loadedLocked(name string, text []byte) {
	c := change{by: "file " + name, action: "file"}
	if l.doc.events.generation == 0 {
		c.action = "start"
	}
	old := l.doc
	l.doc.name, l.doc.text, l.doc.base, l.doc.running = name, text, nil, nil
	if old.text != nil && (l.doc.events.watchers > 0 || len(text) <= maxCompared) {
		before, err := old.runningTree()
		if after, err2 := l.doc.baseTree(); err == nil && err2 == nil {
			c.differences = tree.Diff(specShape(), before, after)
		}
	}
	l.revision = Revision(text)
	l.eventLocked(c)
}
