package publish

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/kube/operator"
)

// A load balancer that is away, then applies one configuration, then refuses the next: what is applied follows it, and stays while it is away.
func TestFileFollowsTheLoadBalancer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "l4.yaml")
	synctest.Test(t, func(t *testing.T) {
		var status atomic.Pointer[v1.LBStatus]
		var changes atomic.Int32
		f := NewFile("l4", path, func(context.Context) (*v1.LBStatus, error) {
			if s := status.Load(); s != nil {
				return s, nil
			}
			return nil, errors.New("away")
		}, nil)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- f.Run(ctx, func() { changes.Add(1) }) }()
		first := operator.Config{Plane: "l4", Text: []byte("services: []\n")}
		if err := f.Publish([]operator.Config{{Plane: "other", Text: []byte("x")}, first}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if text, err := os.ReadFile(path); err != nil || string(text) != string(first.Text) {
			t.Errorf("%q, %v", text, err)
		}
		if f.Applied() != nil || changes.Load() != 0 {
			t.Errorf("%v is applied by a load balancer that is away", f.Applied())
		}
		expect := func(revision string, count int32) {
			t.Helper()
			time.Sleep(10 * time.Second)
			if f.Applied()["l4"] != revision || changes.Load() != count {
				t.Errorf("%v after %d changes, want %s after %d", f.Applied(), changes.Load(), revision, count)
			}
		}
		status.Store(&v1.LBStatus{BalancerStatus: v1.BalancerStatus{Revision: first.Revision()}})
		expect(first.Revision(), 1)
		status.Store(&v1.LBStatus{BalancerStatus: v1.BalancerStatus{Revision: first.Revision(), Error: "refused"}})
		if err := f.Publish([]operator.Config{{Plane: "l4", Text: []byte("services: 1\n")}}); err != nil {
			t.Fatal(err)
		}
		expect(first.Revision(), 2)
		status.Store(nil)
		expect(first.Revision(), 2)
		if reason := f.Refused()["l4"]; reason != "refused" {
			t.Errorf("the reason of the refusal is %q", reason)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A file that cannot be written is an error, and the next round tries again.
func TestFileThatCannotBeWritten(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "missing")
	f := NewFile("l4", filepath.Join(directory, "l4.yaml"), nil, nil)
	configs := []operator.Config{{Plane: "l4", Text: []byte("services: []\n")}}
	if f.Publish(configs) == nil {
		t.Error("written into a directory that does not exist")
	}
	if err := os.Mkdir(directory, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := f.Publish(configs); err != nil {
		t.Error(err)
	}
}
