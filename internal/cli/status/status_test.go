package status

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/testbed/testbedtest"
)

// read is one of the golden files of api/v1, every field of which is set.
func read[T any](t *testing.T, name string) (value T) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "api", "v1", "testdata", name))
	if err == nil {
		err = json.Unmarshal(text, &value)
	}
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// Everything that a status may say is written, and the second look has rates.
func TestBalancerGolden(t *testing.T) {
	for file, name := range map[string]string{"LBStatus.json": "balancer.txt", "NATStatus.json": "nat.txt"} {
		status := read[v1.LBStatus](t, file)
		service := &status.Services[0]
		if status.Kernel != nil { // have the counters be the service's
			for name := range status.Kernel.Backends {
				service.Name = name
			}
			for _, counters := range status.Queues.Services {
				status.Queues.Services = map[string]*v1.NFQueueService{service.Name: counters}
			}
		}
		var out strings.Builder
		status.AppliedAt = time.Now()
		for i := range status.Announce.BGP.Neighbours {
			status.Announce.BGP.Neighbours[i].Since = time.Now()
		}
		now := time.Now()
		for i := range status.Sync.Peers {
			status.Sync.Peers[i].Out.Since, status.Sync.Peers[i].In.Since = &now, &now
		}
		if err := Balancer(&out, &status); err != nil {
			t.Fatal(err)
		}
		shown, at := Counters{}, time.Unix(0, 0)
		for i := range 2 {
			if err := shown.Write(&out, &status, at.Add(time.Duration(2*i)*time.Second)); err != nil {
				t.Fatal(err)
			}
		}
		if err := json.NewEncoder(&out).Encode(Shown(&status)); err != nil {
			t.Fatal(err)
		}
		testbedtest.Golden(t, name, out.String())
	}
}

// A look that says when it was made writes the changes since the one before.
func TestCountersAreDated(t *testing.T) {
	var out strings.Builder
	shown, status := Counters{Dated: true}, v1.LBStatus{}
	status.Generation = 7
	if err := shown.Write(&out, &status, time.Date(2026, 11, 28, 12, 30, 0, 0, time.UTC)); err != nil || out.String() != "12:30:00  snapshot 7\nno services: nothing is balanced\n" {
		t.Errorf("%q, %v", &out, err)
	}
}

func TestListsGolden(t *testing.T) {
	var out strings.Builder
	flows, users := read[v1.FlowList](t, "FlowList.json"), read[v1.TurnUserList](t, "TurnUserList.json")
	if err := Flows(&out, &flows); err != nil {
		t.Fatal(err)
	}
	var table Users
	if err := table.Write(&out, &users); err != nil {
		t.Fatal(err)
	}
	users.At += int64(2 * time.Second)
	users.Users[0].Up.Bytes += 1000
	if err := table.Write(&out, &users); err != nil {
		t.Fatal(err)
	}
	testbedtest.Golden(t, "lists.txt", out.String())
}

// The members of a cluster are listed for each own node; the second look has rates, also of a node that has begun again.
func TestClusterGolden(t *testing.T) {
	view := read[v1.CoAPClusterView](t, "CoAPClusterView.json")
	other, id := view.Nodes[0], uint32(2)
	other.ID, other.Members = 2, []v1.CoAPNode{
		{ID: &id, Management: "127.0.0.1:25884", State: "self"},
		{Management: "127.0.0.1:35884", State: "searched"},
	}
	view.Nodes = append(view.Nodes, other)
	var out strings.Builder
	var shown Cluster
	at := time.Unix(0, 0)
	for i := range 2 {
		view.Nodes[0].Counters.Forwarded += uint64(200 * i)
		view.Nodes[1].Counters.Forwarded /= uint64(1 + i)
		if err := shown.Write(&out, &view, at.Add(time.Duration(2*i)*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	testbedtest.Golden(t, "cluster.txt", out.String())
}

// A server's status holds cluster nodes and other listeners, which are no part of the view.
func TestClusterOf(t *testing.T) {
	status := read[v1.CoAPStatus](t, "CoAPStatus.json")
	status.Listeners = append(status.Listeners, v1.CoAPListener{URI: "coap://127.0.0.1:5683"})
	view := ClusterOf(&status)
	if len(view.Nodes) != 1 || view.Nodes[0].URI != status.Listeners[0].URI || view.Nodes[0].Sessions != status.Listeners[0].Engine.Sessions || len(view.Nodes[0].Members) != 1 {
		t.Errorf("%+v", view)
	}
}

// Backends whose probes fail are not up, also while fail-open uses them.
func TestStatusCountsFailingBackendsAsDown(t *testing.T) {
	var status v1.LBStatus
	status.Services = []v1.ServiceStatus{
		{Name: "open", State: "fail_open", Backends: []v1.BackendStatus{{Share: 0.5}, {Share: 0.5}}},
		{Name: "half", State: "up", Backends: []v1.BackendStatus{{Share: 1}, {}}},
	}
	var out strings.Builder
	if err := Balancer(&out, &status); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"0 of 2 (fail open)", "1 of 2"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

// The live view says when sources hash to one queue, and is silent when they do not.
func TestSpreadHint(t *testing.T) {
	status := func(packets ...uint64) *v1.NFQueueStatus {
		q := &v1.NFQueueStatus{}
		for i, n := range packets {
			s := v1.NFQueue{Number: uint16(i), AddressPairs: int(n / 100)}
			s.Packets = n
			q.Queues = append(q.Queues, s)
		}
		return q
	}
	for _, c := range []struct {
		packets []uint64
		want    string
	}{
		{[]uint64{1000}, ""},
		{[]uint64{50, 0}, ""},
		{[]uint64{600, 400}, ""},
		{[]uint64{700, 100, 100, 100}, ""},
		{[]uint64{0, 200}, "queue 1 gets 100% of the packets (2 of about 2 address pairs hash there): so few pairs cannot be spread better"},
		{[]uint64{9000, 1000}, "queue 0 gets 90% of the packets (90 of about 100 address pairs hash there): its sources are the busy ones"},
	} {
		q := status(c.packets...)
		got := spreadOf(q, nil).hint(q)
		if !strings.HasPrefix(got, c.want) || got != "" && c.want == "" {
			t.Errorf("%v: %q, want %q", c.packets, got, c.want)
		}
	}
}
