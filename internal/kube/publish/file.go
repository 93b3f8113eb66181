package publish

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/kube/operator"
)

// File writes the configuration of one plane to a file that a load balancer on this machine follows, and reads from its admin address
// which revision it has applied.
type File struct {
	Plane string
	Path  string
	// Status requests the status of the load balancer, as client.LBStatus does.
	Status func(context.Context) (*v1.LBStatus, error)
	Log    *slog.Logger

	written chan struct{} // capacity 1
	mu      sync.Mutex
	text    []byte
	applied string
	refused string // why the load balancer refuses what was written; empty: it does not
	problem string // that was logged last
}

const (
	// soon is how often the load balancer is queried while it has not applied what was written; seldom how often else.
	soon   = 10 * time.Millisecond
	seldom = time.Second
)

// NewFile returns a publisher, whose Run queries the load balancer.
func NewFile(plane, path string, status func(context.Context) (*v1.LBStatus, error), log *slog.Logger) *File {
	return &File{Plane: plane, Path: path, Status: status, Log: cmp.Or(log, slog.New(slog.DiscardHandler)), written: make(chan struct{}, 1)}
}

// Publish writes the file if its text changes. Readers see the old file or the new one.
func (f *File) Publish(configs []operator.Config) error {
	for i := range configs {
		if configs[i].Plane != f.Plane {
			continue
		}
		f.mu.Lock()
		same := f.text != nil && bytes.Equal(f.text, configs[i].Text)
		f.mu.Unlock()
		if same {
			return nil
		}
		if err := write(f.Path, configs[i].Text); err != nil {
			return err
		}
		f.mu.Lock()
		f.text = configs[i].Text
		f.mu.Unlock()
		select {
		case f.written <- struct{}{}:
		default:
		}
		return nil
	}
	return nil
}

// write replaces a file in one step.
func write(path string, text []byte) (err error) {
	temporary, err := os.CreateTemp(filepath.Dir(path), ".weir-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(temporary.Name()) // what it failed with is reported
		}
	}()
	if _, err = temporary.Write(text); err != nil {
		_ = temporary.Close()
		return err
	}
	if err = temporary.Close(); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), path)
}

// Applied returns the revision that the load balancer runs.
func (f *File) Applied() map[string]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.applied == "" {
		return nil
	}
	return map[string]string{f.Plane: f.applied}
}

// Refused returns why the load balancer refuses the file.
func (f *File) Refused() map[string]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refused == "" {
		return nil
	}
	return map[string]string{f.Plane: f.refused}
}

// Run queries the load balancer until ctx ends.
func (f *File) Run(ctx context.Context, changed func()) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-f.written:
		}
		if f.query(ctx) {
			changed()
		}
		timer.Reset(f.pause())
	}
}

// pause is the time until the next query.
func (f *File) pause() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	wanted := operator.Config{Text: f.text}
	if f.problem == "" && f.text != nil && f.applied != wanted.Revision() {
		return soon
	}
	if f.problem != "" {
		return seldom / 4
	}
	return seldom
}

// query returns whether the revision that is applied, or the reason of a refusal, has changed.
func (f *File) query(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	status, err := f.Status(ctx)
	problem, applied := "", ""
	switch {
	case err != nil:
		problem = fmt.Sprintf("the load balancer does not answer: %v", err)
	case status.Error != "":
		problem = "the load balancer refuses the configuration: " + status.Error
		applied = status.Revision
	default:
		applied = status.Revision
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if problem != "" && problem != f.problem && ctx.Err() == nil {
		f.Log.Warn("the configuration is not applied", "plane", f.Plane, "error", problem)
	}
	f.problem = problem
	changed := err == nil && (applied != f.applied || status.Error != f.refused)
	if err == nil { // one that does not answer goes on with what it has
		f.applied, f.refused = applied, status.Error
	}
	return changed
}
