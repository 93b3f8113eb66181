package scalebench

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

const (
	weirName = "weir"
	peerPort = 9000 // in a namespace of our own every port is free
)

// peer is a program that holds connections, and how it is configured.
type peer struct {
	name, install string
	server        string // what its clients connect to
	beats         string // what each connection does in the hold
	extra         int    // established sockets of a client process that are no connections of the test
	servers       func(s *peerStage) ([]*exec.Cmd, error)
	clients       func(s *peerStage) ([]*exec.Cmd, error)
}

// PeerNames are the programs that can be compared with.
func PeerNames() []string {
	var names []string
	for _, p := range peers() {
		names = append(names, p.name)
	}
	return names
}

func peerNamed(name string) *peer {
	for _, p := range peers() {
		if p.name == name {
			return p
		}
	}
	return nil
}

// peers are the testers that package registries have and that hold connections; docs/tcp-compare.md says which they have not.
func peers() []*peer {
	return []*peer{
		{
			name: "fortio", install: "go install fortio.org/fortio@v1.63.10", server: "fortio tcp-echo", beats: "a byte and its echo each period",

			servers: func(s *peerStage) (cmds []*exec.Cmd, err error) {
				for i := range s.processes {
					cmds = append(cmds, exec.Command("fortio", "tcp-echo", "-tcp-port", fmt.Sprintf("0.0.0.0:%d", peerPort+i), "-loglevel", "Error"))
				}
				return cmds, nil
			},
			clients: func(s *peerStage) (cmds []*exec.Cmd, err error) {
				for i := range s.processes {
					n := s.share(i)
					rate := strconv.FormatFloat(float64(n)/s.period.Seconds(), 'f', 6, 64)
					cmds = append(cmds, exec.Command("fortio", "load", "-c", strconv.Itoa(n), "-qps", rate, "-t", "0", "-uniform", "-nocatchup", "-payload", "x",
						"-timeout", "30s", "-loglevel", "Error", fmt.Sprintf("tcp://%s:%d", peerAddress(i), peerPort+i)))
				}
				return cmds, nil
			},
		},
		{
			name: "tsung", install: "apt-get install tsung", server: "weir tcp server (plain)", beats: "a byte each period, no answer",
			extra: 2, servers: weirServers, clients: tsungClients, // extra: to epmd, both ends
		},
		{
			name: "wrk", install: "apt-get install wrk", server: "weir tcp server (plain)", beats: "one byte, then nothing",
			servers: weirServers,
			clients: func(s *peerStage) (cmds []*exec.Cmd, err error) {
				script := filepath.Join(s.Dir, "plain.lua")
				if err := os.WriteFile(script, []byte(wrkScript), 0o600); err != nil {
					return nil, fmt.Errorf("script for wrk: %w", err)
				}
				for i := range s.processes {
					cmds = append(cmds, exec.Command("wrk", "-t", "1", "-c", strconv.Itoa(s.share(i)), "-d", "24h", "--timeout", "1m",
						"-s", script, fmt.Sprintf("http://%s:%d/", peerAddress(i), peerPort)))
				}
				return cmds, nil
			},
		},
	}
}

func weirPeer() *peer {
	return &peer{
		name: weirName, server: "weir tcp server", beats: "32 bytes and their answer each period",
		servers: weirServers,
		clients: func(s *peerStage) ([]*exec.Cmd, error) {
			return []*exec.Cmd{s.weir("tcp", "client", "--to", fmt.Sprintf("127.0.0.1:%d", peerPort), "--connections", strconv.Itoa(s.connections),
				"--workers", strconv.Itoa(s.processes), "--heartbeat", s.period.String(), "--quiet")}, nil
		},
	}
}

func weirServers(s *peerStage) ([]*exec.Cmd, error) {
	return []*exec.Cmd{s.weir("tcp", "server", "--listen", fmt.Sprintf("0.0.0.0:%d", peerPort), "--workers", strconv.Itoa(s.processes), "--plain-timeout", "0", "--quiet")}, nil
}

// peerAddress is where client process i connects to: ports of one source address suffice towards each.
func peerAddress(i int) string { return fmt.Sprintf("127.1.%d.%d", i/250, i%250+1) }

// wrkScript sends the plain stream's zero byte. The first request is only parsed, and must be one of HTTP.
const wrkScript = `local parsed = false
request = function()
  if parsed then return string.char(0) end
  parsed = true
  return "GET / HTTP/1.1\r\n\r\n"
end
`

// tsungRate is the arrivals a second that are requested of each tsung: more than it reaches.
const tsungRate = 5000

const tsungScenario = `<?xml version="1.0"?>
<!DOCTYPE tsung SYSTEM "/usr/share/tsung/tsung-1.0.dtd">
<tsung loglevel="critical" backend="text">
 <clients><client host="localhost" use_controller_vm="true" maxusers="%d"/></clients>
 <servers><server host="%s" port="%d" type="tcp"/></servers>
 <load><arrivalphase phase="1" duration="1" unit="hour"><users maxnumber="%d" arrivalrate="%d" unit="second"/></arrivalphase></load>
 <sessions><session name="hold" probability="100" type="ts_raw"><for from="1" to="100000" var="i">
  <request><raw datasize="1" ack="no_ack"/></request><thinktime value="%d"/>
 </for></session></sessions>
</tsung>
`

// tsungClients are Erlang nodes, which need the port mapper: ours, as theirs would outlive them.
func tsungClients(s *peerStage) ([]*exec.Cmd, error) {
	mapper := exec.Command("epmd", "-relaxed_command_check")
	if err := s.start(mapper); err != nil {
		return nil, err
	}
	var cmds []*exec.Cmd
	for i := range s.processes {
		n, home := s.share(i), filepath.Join(s.Dir, strconv.Itoa(i))
		scenario := filepath.Join(home, "tsung.xml")
		text := fmt.Sprintf(tsungScenario, n+1000, peerAddress(i), peerPort, n, tsungRate, max(1, int(s.period/time.Second)))
		if err := os.Mkdir(home, 0o700); err != nil {
			return nil, fmt.Errorf("home of tsung: %w", err)
		}
		if err := os.WriteFile(scenario, []byte(text), 0o600); err != nil {
			return nil, fmt.Errorf("scenario for tsung: %w", err)
		}
		cmd := exec.Command("tsung", "-f", scenario, "-l", home, "-n", "-i", fmt.Sprintf("weir%d", i), "start")
		cmd.Env = append(os.Environ(), "HOME="+home)
		cmds = append(cmds, cmd)
	}
	return cmds, nil
}
