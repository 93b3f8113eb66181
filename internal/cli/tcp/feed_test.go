package tcp

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/tcpscale/stats"
)

// statsState asks a service until its state is as wanted.
func statsState(t *testing.T, at string, wanted func(*stats.State) bool) *stats.State {
	t.Helper()
	var last stats.State
	for deadline := time.Now().Add(90 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if response, err := http.Get("http://" + at + "/api/state"); err == nil {
			last = stats.State{}
			err = json.NewDecoder(response.Body).Decode(&last)
			response.Body.Close()
			if err == nil && wanted(&last) {
				return &last
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("never as wanted: %+v %+v, %d servers, %d clients", last.Servers, last.Clients, len(last.ServerRows), len(last.ClientRows))
		}
	}
}

// shownToNoOther sees that who does not know the token learns nothing of the reporters.
func shownToNoOther(t *testing.T, at string) {
	t.Helper()
	for _, path := range []string{"/", "/api/state", "/api/history", "/api/events"} {
		response, err := http.Get("http://" + at + path)
		clitest.Must(t, err)
		response.Body.Close()
		if response.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s without the token: %s", path, response.Status)
		}
	}
}

// A server and three replicas of a client report to a service that comes after them; all are seen as what they are,
// and end as ended.
func TestTCPReportsToStats(t *testing.T) {
	clitest.TakesSeconds(t)
	at := clitest.FreeTCP(t).String()
	server, _, serverNotes := tcpProcess(t, (*exec.Cmd).Start, "server", "--listen", "127.0.0.1:0", "--workers", "2", "--id", "srv", "--stats", at)
	target := clitest.WaitFor(t, serverNotes, `listening on (127.0.0.1:\d+)`)[1]
	client, out, clientNotes := tcpProcess(t, (*exec.Cmd).Start, "client", "--to", target, "--connections", "40", "--replicas", "3", "--workers", "2",
		"--id", "pod", "--heartbeat", "500ms", "--misses", "20", "--stats", at, "--json", "--quiet") // a loaded machine may be silent for a while
	for _, notes := range []*clitest.LockedBuffer{serverNotes, clientNotes} {
		clitest.WaitFor(t, notes, `connection refused; the run goes on`)
	}
	_, _, pageNotes := tcpProcess(t, (*exec.Cmd).Start, "stats", "--listen", at, "--expect", "120")
	page := at
	at = "x:" + clitest.WaitFor(t, pageNotes, `\?token=([A-Z2-7]{26})`)[1] + "@" + page
	shownToNoOther(t, page)
	st := statsState(t, at, func(s *stats.State) bool {
		return s.Connected == 120 && s.Clients.Live == 3 && s.Difference != nil && *s.Difference == 0 && len(s.Matrix.Rows) == 3 && s.ServerRows[0].Peers == 3
	})
	names := []string{st.ClientRows[0].Name, st.ClientRows[1].Name, st.ClientRows[2].Name}
	if !slices.Equal(names, []string{"pod-0", "pod-1", "pod-2"}) || st.ServerRows[0].Name != "srv" || st.Expected != 120 {
		t.Errorf("clients %v, servers %v", names, st.ServerRows)
	}
	for _, row := range st.Matrix.Rows {
		if row.Sum != 40 || len(row.Cells) != 1 || row.ByPeer {
			t.Errorf("row %+v", row)
		}
	}
	client.Process.Signal(os.Interrupt)
	err := client.Wait()
	if busy := regexp.MustCompile(`the result is void: a worker was not scheduled for `).MatchString(clientNotes.String()); (err != nil) != busy || !strings.Contains(out.String(), `"whole_replicas": 3`) {
		t.Errorf("%v\n%s", err, out)
	}
	server.Process.Signal(os.Interrupt)
	if err := server.Wait(); err != nil {
		t.Error(err)
	}
	st = statsState(t, at, func(s *stats.State) bool { return s.Clients.Ended == 3 && s.Servers.Ended == 1 })
	if st.Connected != 0 || st.Clients.Silent != 0 {
		t.Errorf("after the end: %d connected, %+v", st.Connected, st.Clients)
	}
	for _, notes := range []*clitest.LockedBuffer{serverNotes, clientNotes} {
		if found := regexp.MustCompile(`statistics: .*`).FindAllString(notes.String(), -1); len(found) != 2 || !strings.Contains(found[1], "takes reports again") {
			t.Errorf("notes %q: want the outage and its end, once each", found)
		}
	}
}

// The page of a benchmark of its own shows both ends while it runs.
func TestTCPBenchServesItsPage(t *testing.T) {
	clitest.TakesSeconds(t)
	bench, _, notes := tcpProcess(t, (*exec.Cmd).Start, "bench", "--connections", "200", "--workers", "1", "--server-workers", "1", "--hold", "1h",
		"--heartbeat", "500ms", "--serve-stats", "127.0.0.1:0")
	found := clitest.WaitFor(t, notes, `http://(127\.0\.0\.1:\d+)/\?token=([A-Z2-7]{26})`)
	at := found[1]
	shownToNoOther(t, at)
	statsState(t, "x:"+found[2]+"@"+at, func(s *stats.State) bool {
		return s.Clients.Established == 200 && s.Clients.Live == 1 && s.Expected == 200 && s.Servers.Established == 200 && s.Servers.Live == 1
	})
	bench.Process.Signal(os.Interrupt)
	if err := bench.Wait(); err != nil {
		t.Error(err)
	}
	if _, err := http.Get("http://" + at); err == nil {
		t.Error("the page is still there")
	}
}

func TestTCPFeedFlagsAreChecked(t *testing.T) {
	for _, args := range []string{
		"client --to 127.0.0.1:1 --stats ftp://h", "client --to 127.0.0.1:1 --stats http://user:secret@h", "client --to 127.0.0.1:1 --replicas 0",
		"client --to 127.0.0.1:1 --stats h:1 --stats-token-file /nowhere", "server --stats-token-file /nowhere", "bench --stats h:1 --serve-stats :0",
	} {
		cmd, out, _ := tcpProcess(t, (*exec.Cmd).Start, strings.Fields(args)...)
		cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != cli.ExitUsage {
			t.Errorf("%s: exit code %d\n%s", args, code, out)
		}
	}
}

// A service with a token: the page requests it, and a server that has it reports.
func TestTCPStatsWithToken(t *testing.T) {
	clitest.TakesSeconds(t)
	token := t.TempDir() + "/token"
	clitest.Must(t, os.WriteFile(token, []byte("0123456789abcdef\n"), 0o600))
	_, _, notes := tcpProcess(t, (*exec.Cmd).Start, "stats", "--listen", "127.0.0.1:0", "--token-file", token)
	at := clitest.WaitFor(t, notes, `http://(127\.0\.0\.1:\d+)/`)[1]
	response, err := http.Get("http://" + at + "/")
	clitest.Must(t, err)
	response.Body.Close()
	if response.StatusCode != http.StatusUnauthorized {
		t.Errorf("without the token: %s", response.Status)
	}
	tcpProcess(t, (*exec.Cmd).Start, "server", "--listen", "127.0.0.1:0", "--workers", "1", "--id", "srv", "--stats", at, "--stats-token-file", token)
	statsState(t, "x:0123456789abcdef@"+at, func(s *stats.State) bool { return s.Servers.Live == 1 && s.ServerRows[0].ID == "srv" })
}
