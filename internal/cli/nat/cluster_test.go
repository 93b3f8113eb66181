package nat

import (
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// Of what nodes say about owners the highest version holds; an owner that is no destination, and a node that never answered, change
// nothing.
func TestOwnersOfACluster(t *testing.T) {
	for name, test := range map[string]struct {
		nodes []*clusterNode
		want  [][]uint32
	}{
		"nothing moved": {[]*clusterNode{{ids: []uint32{1}}, {ids: []uint32{2, 7}}}, [][]uint32{{1}, {2, 7}}},
		"moved": {[]*clusterNode{
			{ids: []uint32{1}, owners: []v1.CoAPOwner{{Shard: 1, Owner: 2, Version: 1}}}, {ids: []uint32{2}}, {ids: []uint32{3}},
		}, [][]uint32{nil, {1, 2}, {3}}},
		"one node is late": {[]*clusterNode{
			{ids: []uint32{1}, owners: []v1.CoAPOwner{{Shard: 1, Owner: 1, Version: 2}}}, {ids: []uint32{2}, owners: []v1.CoAPOwner{{Shard: 1, Owner: 2, Version: 1}}},
		}, [][]uint32{{1}, {2}}},
		"elsewhere": {[]*clusterNode{{ids: []uint32{1}, owners: []v1.CoAPOwner{{Shard: 1, Owner: 9, Version: 1}}}, {}}, [][]uint32{{1}, nil}},
	} {
		if got := ownerIDs(test.nodes); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// A node that drains gets no new clients, and nothing once it has ended; a node that only does not answer is left alone.
func TestStatesOfNodes(t *testing.T) {
	for want, n := range map[lb.Override]clusterNode{
		lb.OverrideDrain: {draining: true, answers: true}, lb.OverrideDown: {draining: true}, lb.NoOverride: {answers: true},
	} {
		if got := n.state(); got != want {
			t.Errorf("%+v: %v, want %v", n, got, want)
		}
	}
	if got := (&clusterNode{}).state(); got != lb.NoOverride {
		t.Errorf("a node that does not answer: %v", got)
	}
}

func TestClusterFlags(t *testing.T) {
	for args, want := range map[string]string{
		"--cluster unix:a":                                       "needs --cid-length",
		"--cid-length 6 --cluster unix:a,unix:b":                 "2 admin addresses for 1 destinations",
		"--cid-length 6 --cluster unix:a --node-ids 1":           "exclude each other",
		"--cid-length 6 --cluster unix:a --cluster-token-file x": "--cluster-token-file",
	} {
		root := clitest.Root()
		root.SetArgs(append([]string{"nat", "127.0.0.1:5784", "127.0.0.1:9"}, strings.Fields(args)...))
		root.SetOut(io.Discard)
		root.SetErr(io.Discard)
		err := root.ExecuteContext(t.Context())
		var exit *cli.ExitError
		if !errors.As(err, &exit) || exit.Code != cli.ExitUsage || !strings.Contains(exit.Error(), want) {
			t.Errorf("weir nat %s: %v, want %s", args, err, want)
		}
	}
}
