package bench

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// Programs of other projects that join a run.
const (
	peerCfNAT    = "cf-nat"
	peerCoturn   = "coturn"
	peerNfqlb    = "nfqlb"
	peerScandium = "scandium"
	peerStunner  = "stunnerd"
)

// peerProgram is where a peer's program is found, and where it comes from.
type peerProgram struct {
	name    string
	program string // in the PATH; empty: a jar that env names
	env     string // names the program's file where it is not in the PATH
	from    string // what to do without it
}

func peerPrograms() []peerProgram {
	return []peerProgram{
		{peerCfNAT, "", "WEIR_CF_NAT", "get the jar of cf-nat 3.0 or later from Maven Central, org.eclipse.californium:cf-nat"},
		{peerCoturn, "turnserver", "WEIR_TURNSERVER", "apt-get install coturn"},
		{peerNfqlb, "nfqlb", "WEIR_NFQLB", "build it from github.com/Nordix/nfqueue-loadbalancer"},
		{peerStunner, "stunnerd", "WEIR_STUNNERD", "build it from github.com/l7mp/stunner"},
	}
}

// findPeer returns the file of a peer's program or jar, or its class path: what the environment names, or else what the PATH has.
func findPeer(name string) (string, error) {
	if name == peerScandium {
		if err := scandiumFound(); err != nil {
			return "", fmt.Errorf("--with %s: %w", name, err)
		}
		return scandiumClasses()
	}
	programs := peerPrograms()
	at := slices.IndexFunc(programs, func(p peerProgram) bool { return p.name == name })
	if at < 0 {
		return "", fmt.Errorf("no program of a peer %q", name)
	}
	p := programs[at]
	if p.program == "" {
		return p.findJar()
	}
	if file := os.Getenv(p.env); file != "" {
		path, err := exec.LookPath(file)
		if err != nil {
			return "", fmt.Errorf("--with %s: $%s: %w", p.name, p.env, err)
		}
		return path, nil
	}
	path, err := exec.LookPath(p.program)
	if err != nil {
		return "", fmt.Errorf("--with %s: %s is %w; %s, and put it there or set $%s to its file", p.name, p.program, errNoTool, p.from, p.env)
	}
	return path, nil
}

func (p *peerProgram) findJar() (string, error) {
	file := os.Getenv(p.env)
	if file == "" {
		return "", fmt.Errorf("--with %s: %s, and set $%s to its file", p.name, p.from, p.env)
	}
	if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() {
		return "", fmt.Errorf("--with %s: $%s: %s is no file that can be read", p.name, p.env, file)
	}
	if _, err := exec.LookPath("java"); err != nil {
		return "", fmt.Errorf("--with %s: java is %w; install: apt-get install default-jre-headless", p.name, errNoTool)
	}
	return file, nil
}

// checkPeers says which of the peers requested a scenario does not have, which are named twice, and which are not installed.
func checkPeers(with []string, has ...string) error {
	for i, name := range with {
		if !slices.Contains(has, name) {
			return fmt.Errorf("--with %q: write %s", name, strings.Join(has, ", "))
		}
		if slices.Contains(with[:i], name) {
			return fmt.Errorf("--with: %s is named twice", name)
		}
		if _, err := findPeer(name); err != nil {
			return err
		}
	}
	return nil
}
