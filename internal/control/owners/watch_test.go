package owners

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// own is a line of a node with one id.
func own(id uint32, draining bool, owners ...v1.CoAPOwner) *v1.CoAPOwners {
	return &v1.CoAPOwners{Nodes: []v1.CoAPOwnNode{{ID: id, Draining: draining, Owners: owners}}}
}

// A node that can be followed is queried once; its lines count at once. When it ends, is silent or sends nonsense, it is queried again, and
// followed again later.
func TestFollowedNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{nodes: map[string]*v1.CoAPStatus{"a:1": status(false, nil, 1), "b:1": status(false, nil, 2)}, states: map[lb.Target]lb.Override{}}
		lines, ended := make(chan *v1.CoAPOwners), make(chan struct{})
		followed := 0
		f := New(t.Context(), c.query, nil, c.report)
		f.Watch(func(ctx context.Context, _ *lb.Cluster, admin string, each func(*v1.CoAPOwners) error) error {
			if admin != "a:1" {
				return errors.New("404: an older node")
			}
			followed++
			for {
				select {
				case <-ctx.Done():
					return nil
				case <-ended:
					return errors.New("it has ended")
				case line := <-lines:
					if err := each(line); err != nil {
						return err
					}
				}
			}
		})
		f.Follow(snapshot(t, "a:1", "b:1"))
		c.expect(t, 0, "map[a:[1] b:[2]]", nil)
		moved := v1.CoAPOwner{Shard: 1, Owner: 2, Version: 1}
		lines <- own(1, true, moved)
		c.expect(t, 0, "map[a:[] b:[1 2]]", map[string]lb.Override{"a": lb.OverrideDrain})
		lines <- own(1, true, moved)
		c.expect(t, time.Second, "map[a:[] b:[1 2]]", map[string]lb.Override{"a": lb.OverrideDrain})
		if a, b := f.counts("a"), f.counts("b"); a.passed != 3 || b.passed < 3 || followed != 1 {
			t.Errorf("a %+v, b %+v, followed %d times", a, b, followed)
		}
		c.gone("a:1")
		ended <- struct{}{}
		c.expect(t, 0, "map[a:[] b:[1 2]]", map[string]lb.Override{"a": lb.OverrideDown}) // within no time, not that of a query
		c.set("a:1", status(false, []v1.CoAPOwner{{Shard: 1, Owner: 1, Version: 2}}, 1))
		c.expect(t, 10*time.Second, "map[a:[1] b:[2]]", nil)
		if followed < 2 {
			t.Errorf("followed %d times", followed)
		}
		c.gone("a:1") // it hangs: no line, and no answer
		c.expect(t, 5*time.Second, "map[a:[1] b:[2]]", nil)
		if s := f.Status()["s"]; s.Nodes[0].Answers {
			t.Errorf("%+v", s)
		}
		c.set("a:1", status(false, nil, 1))
		time.Sleep(watchAgain)
		synctest.Wait()
		lines <- own(300, false) // nonsense ends it
		c.expect(t, 0, "map[a:[1] b:[2]]", nil)
		f.Stop()
	})
}

func (f *Follower) counts(backend string) counts {
	f.mu.Lock()
	defer f.mu.Unlock()
	return *f.services["s"].counts[backend]
}
