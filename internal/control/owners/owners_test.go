package owners

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// status is what a node with these ids answers.
func status(draining bool, owners []v1.CoAPOwner, ids ...uint32) *v1.CoAPStatus {
	s := &v1.CoAPStatus{Listeners: []v1.CoAPListener{{}}} // the first listener is no node
	for _, id := range ids {
		s.Listeners = append(s.Listeners, v1.CoAPListener{NodeID: &id, Cluster: &v1.CoAPCluster{}, Moves: &v1.CoAPMoves{Draining: draining, Owners: owners}})
	}
	return s
}

// Of what nodes report about owners the highest version holds; an owner that is no queried node, and a node that never answered, change
// nothing; an id that two nodes have belongs to one of them.
func TestMerge(t *testing.T) {
	moved := func(shard, owner uint8, version uint32) []v1.CoAPOwner {
		return []v1.CoAPOwner{{Shard: shard, Owner: owner, Version: version}}
	}
	for name, test := range map[string]struct {
		answers  []*v1.CoAPStatus // nil: none
		want     string
		conflict bool
	}{
		"nothing moved":                 {[]*v1.CoAPStatus{status(false, nil, 1), status(false, nil, 7, 2)}, "map[a:[1] b:[2 7]]", false},
		"moved":                         {[]*v1.CoAPStatus{status(false, moved(1, 2, 1), 1), status(false, nil, 2), status(false, nil, 3)}, "map[a:[] b:[1 2] c:[3]]", false},
		"a node is late":                {[]*v1.CoAPStatus{status(false, moved(1, 1, 2), 1), status(false, moved(1, 2, 1), 2)}, "map[a:[1] b:[2]]", false},
		"the home has not answered yet": {[]*v1.CoAPStatus{nil, status(false, moved(1, 2, 1), 2)}, "map[a:[] b:[1 2]]", false},
		"elsewhere":                     {[]*v1.CoAPStatus{status(false, moved(1, 9, 1), 1), nil}, "map[a:[1] b:[]]", false},
		"one id twice":                  {[]*v1.CoAPStatus{status(false, nil, 1), status(false, nil, 1, 2)}, "map[a:[1] b:[2]]", true},
	} {
		nodes := map[string]*node{}
		for i, s := range test.answers {
			n := &node{}
			if s != nil {
				a, err := answerOf(s)
				if err != nil {
					t.Fatal(err)
				}
				n.answer = a
			}
			nodes[string(rune('a'+i))] = n
		}
		owned, conflict := merge(nodes)
		if got := fmt.Sprint(owned); got != test.want || (conflict != "") != test.conflict {
			t.Errorf("%s: %s, %q; want %s", name, got, conflict, test.want)
		}
	}
}

func TestAnswersThatAreRefused(t *testing.T) {
	many := make([]v1.CoAPOwner, maxShards+1)
	for want, s := range map[string]*v1.CoAPStatus{
		"no listener is a node": status(false, nil), "more than one byte": status(false, nil, 256), "more than a cluster has": status(false, many, 1),
	} {
		if _, err := answerOf(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// A node that drains gets no new clients, and nothing once it has ended; a node that only does not answer is left alone.
func TestStatesOfNodes(t *testing.T) {
	for _, test := range []struct {
		draining, answers bool
		want              lb.Override
	}{
		{true, true, lb.OverrideDrain}, {true, false, lb.OverrideDown}, {false, true, lb.NoOverride}, {false, false, lb.NoOverride},
	} {
		if got := (&node{answer: answer{draining: test.draining}, answers: test.answers}).state(); got != test.want {
			t.Errorf("%+v: %v", test, got)
		}
	}
}

// cluster is nodes that answer or not, and what was reported of them.
type cluster struct {
	mu      sync.Mutex
	nodes   map[string]*v1.CoAPStatus // by admin address; nil: it hangs; absent: refused
	refuse  bool
	owned   map[string][]uint32
	states  map[lb.Target]lb.Override
	reports int
}

func (c *cluster) query(ctx context.Context, _ *lb.Cluster, admin string) (*v1.CoAPStatus, error) {
	c.mu.Lock()
	s, ok := c.nodes[admin]
	c.mu.Unlock()
	switch {
	case !ok:
		return nil, errors.New("connection refused")
	case s == nil:
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s, nil
}

func (c *cluster) report(r Report) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refuse {
		return errors.New("not now")
	}
	c.reports++
	c.owned = r.Owned
	for target, value := range r.States {
		c.states[target] = value
	}
	return nil
}

func (c *cluster) set(admin string, s *v1.CoAPStatus) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes[admin] = s
}

func (c *cluster) gone(admin string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.nodes, admin)
}

func (c *cluster) expect(t *testing.T, after time.Duration, owned string, states map[string]lb.Override) {
	t.Helper()
	time.Sleep(after)
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	got := map[string]lb.Override{}
	for target, value := range c.states {
		if value != lb.NoOverride {
			got[target.Backend] = value
		}
	}
	if text := fmt.Sprint(c.owned); text != owned || !maps.Equal(got, states) {
		t.Errorf("owned %s, states %v; want %s, %v", text, got, owned, states)
	}
}

func snapshot(t *testing.T, admins ...string) *lb.Snapshot {
	t.Helper()
	service := lb.ServiceSpec{Name: "s", CID: &lb.CIDSpec{Layouts: []lb.LayoutSpec{{Length: 6, Owner: &lb.BitsSpec{Bits: 8}}}}}
	var protocol lb.CIDProtocol
	vip := lb.VIPSpec{Protocol: lb.Protocol(lb.UDP), Port: lb.PortRange{First: 7, Last: 7}}
	if err := errors.Join(vip.Address.UnmarshalText([]byte("192.0.2.1")), protocol.UnmarshalText([]byte("dtls12"))); err != nil {
		t.Fatal(err)
	}
	service.VIPs, service.CID.Protocols = []lb.VIPSpec{vip}, []lb.CIDProtocol{protocol}
	for i, admin := range admins {
		service.Backends = append(service.Backends, lb.BackendSpec{Name: string(rune('a' + i)), Address: netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), Admin: admin})
	}
	if len(admins) > 0 {
		service.Cluster = &lb.ClusterSpec{}
	}
	s, err := lb.Compile(lb.Spec{MaglevSize: 251, Services: []lb.ServiceSpec{service}}, nil, lb.AllCaps())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A shard moves to another node and back; a node that hangs or is gone delays no other one and leaves the view; the view becomes old, and
// new again; a report that was refused is repeated; a service that follows no more leaves nothing.
func TestFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{nodes: map[string]*v1.CoAPStatus{"a:1": status(false, nil, 1), "b:1": status(false, nil, 2), "c:1": nil}, states: map[lb.Target]lb.Override{}}
		f := New(t.Context(), c.query, nil, c.report)
		f.Follow(snapshot(t, "a:1", "b:1", "c:1"))
		c.expect(t, 0, "map[a:[1] b:[2] c:[]]", nil)
		c.set("a:1", status(true, []v1.CoAPOwner{{Shard: 1, Owner: 2, Version: 1}}, 1))
		c.expect(t, 500*time.Millisecond, "map[a:[] b:[1 2] c:[]]", map[string]lb.Override{"a": lb.OverrideDrain})
		c.gone("a:1")
		c.expect(t, 500*time.Millisecond, "map[a:[] b:[1 2] c:[]]", map[string]lb.Override{"a": lb.OverrideDown})
		c.mu.Lock()
		c.refuse = true
		c.mu.Unlock()
		c.set("a:1", status(false, []v1.CoAPOwner{{Shard: 1, Owner: 1, Version: 2}}, 1))
		c.expect(t, 900*time.Millisecond, "map[a:[] b:[1 2] c:[]]", map[string]lb.Override{"a": lb.OverrideDown})
		c.mu.Lock()
		c.refuse = false
		c.mu.Unlock()
		c.expect(t, 2*retry, "map[a:[1] b:[2] c:[]]", nil)
		reports := c.reports
		c.gone("a:1")
		c.gone("b:1")
		c.expect(t, 11*time.Second, "map[a:[1] b:[2] c:[]]", nil)
		if s := f.Status()["s"]; !s.Old || s.Age < 10 || s.Nodes[0].Answers || s.Nodes[0].Error != "connection refused" || s.Nodes[0].Queries.Failed < 20 || s.Nodes[0].Queries.Passed == 0 || !reflect.DeepEqual(s.Nodes[0].IDs, []uint32{1}) ||
			!strings.Contains(s.Nodes[2].Error, "deadline") {
			t.Errorf("status %+v", s)
		}
		f.Follow(snapshot(t, "a:1", "b:1")) // a reload while no node answers: the view stays
		c.expect(t, time.Second, "map[a:[1] b:[2]]", nil)
		c.set("b:1", status(true, nil, 2))
		c.expect(t, time.Second, "map[a:[1] b:[2]]", map[string]lb.Override{"b": lb.OverrideDrain})
		if s := f.Status()["s"]; s.Old || s.Age > 1 || c.reports > reports+2 {
			t.Errorf("status %+v, %d reports", s, c.reports-reports)
		}
		c.set("b:1", status(false, []v1.CoAPOwner{{Shard: 1, Owner: 2, Version: 9}}, 2))
		c.expect(t, time.Second, "map[a:[] b:[1 2]]", nil)
		c.gone("b:1")
		c.set("a:1", status(false, nil, 1)) // all nodes were started again, and node 2 does not come back
		c.expect(t, 5*time.Second, "map[a:[] b:[1 2]]", nil)
		c.expect(t, 6*time.Second, "map[a:[1] b:[2]]", nil)
		f.Follow(snapshot(t))
		c.expect(t, time.Second, "map[]", nil)
		if len(f.Status()) > 0 {
			t.Errorf("status %+v", f.Status())
		}
		f.Stop()
	})
}
