package turn

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/cli/clitest"
)

func TestCompletionOfTURNUsers(t *testing.T) {
	config, server := turnConfig(t)
	g := startGateway(t, os.Args[0], config, server)
	fs := newTurnFlows(t, server, 3, 200*time.Millisecond)
	defer fs.release()
	for flag, want := range map[string]string{"--user": flowUser, "--listener": "udp"} {
		values, directive := clitest.Offered(t, "turn", "users", "--admin=unix:"+g.Socket, flag, want[:1])
		if got := strings.Join(clitest.Names(values), " "); got != want || directive != cobra.ShellCompDirectiveNoFileComp {
			t.Errorf("%s: %q (%d), want %q", flag, got, directive, want)
		}
	}
}
