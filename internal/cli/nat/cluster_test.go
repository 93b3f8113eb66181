package nat

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/clitest"
)

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
