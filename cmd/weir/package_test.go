package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/privilege"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// makePackages makes packages of a program. A directory of manual pages and completions stands for the real ones.
func makePackages(t *testing.T, out, binary, version string, args ...string) (files []string) {
	t.Helper()
	share, source := t.TempDir(), t.TempDir()
	for _, file := range []string{"man/man1/weir.1", "bash-completion/completions/weir"} {
		clitest.Must(t, os.MkdirAll(filepath.Join(share, filepath.Dir(file)), 0o755))
		clitest.Must(t, os.WriteFile(filepath.Join(share, file), []byte(file), 0o600))
	}
	for _, name := range []string{"deploy/package", "deploy/systemd"} {
		clitest.Must(t, os.CopyFS(filepath.Join(source, name), os.DirFS("../../"+name)))
	}
	for _, name := range []string{"LICENSE", "CHANGELOG.md"} {
		text, err := os.ReadFile("../../" + name)
		clitest.Must(t, err)
		clitest.Must(t, os.WriteFile(filepath.Join(source, name), text, 0o600))
	}
	args = append([]string{"package", "-binary", binary, "-architecture", runtime.GOARCH, "-source", source, "-share", share, "-version", version, "-epoch", "1700000000", "-o", out}, args...)
	if text, err := exec.Command(netlabtest.DeployTool(t), args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	files, err := filepath.Glob(filepath.Join(out, "weir*.???"))
	clitest.Must(t, err)
	return files
}

// stub is a small program that stands for weir where it does not have to run: a link of the real one takes longer than the packages.
func stub(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "weir")
	clitest.Must(t, os.WriteFile(file, []byte("#!/bin/sh\n"), 0o755))
	return file
}

// Packages of the same files are the same bytes, whichever directory they come from and whenever they are made.
func TestPackagesAreReproducible(t *testing.T) {
	clitest.TakesSeconds(t)
	first, second := makePackages(t, t.TempDir(), stub(t), "v1.2.3"), makePackages(t, t.TempDir(), stub(t), "v1.2.3")
	if len(first) != 2 || len(second) != 2 {
		t.Fatalf("made %q and %q", first, second)
	}
	for i := range first {
		a, err := os.ReadFile(first[i])
		clitest.Must(t, err)
		b, err := os.ReadFile(second[i])
		clitest.Must(t, err)
		if filepath.Base(first[i]) != filepath.Base(second[i]) || !bytes.Equal(a, b) {
			t.Errorf("%s and %s differ", first[i], second[i])
		}
	}
}

// Versions of Go's are ordered by dpkg as they are by Go.
func TestPackageVersionsAreOrdered(t *testing.T) {
	clitest.TakesSeconds(t)
	netlabtest.Tools(t, "dpkg", "dpkg-deb")
	versions := []string{"v0.0.0-20261128171003-81e45c03abcd", "v0.1.0-rc.1", "v0.1.0", "v0.1.1-0.20261129000000-0123456789ab"}
	previous := ""
	for _, version := range versions {
		files := makePackages(t, t.TempDir(), stub(t), version, "-formats", "deb")
		out, err := exec.Command("dpkg-deb", "--field", files[0], "Version").Output()
		clitest.Must(t, err)
		now := strings.TrimSpace(string(out))
		if previous != "" && exec.Command("dpkg", "--compare-versions", previous, "lt", now).Run() != nil {
			t.Errorf("%s (%s) is not newer than %s", now, version, previous)
		}
		previous = now
	}
}

// The rpm has the same files and scripts as the deb, and owns its directories.
func TestRPM(t *testing.T) {
	clitest.TakesSeconds(t)
	netlabtest.Tools(t, "rpm")
	file := makePackages(t, t.TempDir(), stub(t), "v1.2.3", "-formats", "rpm")[0]
	query := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("rpm", append([]string{"-qp", "--nosignature", "--dbpath", t.TempDir()}, append(args, file)...)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	list := query("-l")
	for _, path := range []string{
		"/usr/bin/weir", "/etc/weir", "/etc/weir/lb.yaml", "/usr/lib/systemd/system/weir-lb.service", "/usr/lib/sysusers.d/weir.conf", "/usr/lib/tmpfiles.d/weir.conf",
		"/usr/share/man/man1/weir.1", "/usr/share/bash-completion/completions/weir", "/usr/share/doc/weir",
	} {
		if !strings.Contains("\n"+list, "\n"+path+"\n") {
			t.Errorf("the package has no %s:\n%s", path, list)
		}
	}
	scripts := query("--scripts")
	for _, name := range []string{"postinstall", "preremove", "postremove"} {
		text, err := os.ReadFile("../../deploy/package/" + name + ".sh")
		clitest.Must(t, err)
		if title := strings.Replace(name, "remove", "uninstall", 1) + " scriptlet"; !strings.Contains(scripts, title) || !strings.Contains(scripts, strings.TrimSpace(string(text))) {
			t.Errorf("the package lacks the script %s:\n%s", name, scripts)
		}
	}
	if configs := query("-qc"); strings.Count(configs, "/etc/weir/") != 4 {
		t.Errorf("configuration files:\n%s", configs)
	}
}

// A root with nothing but a shell: the package installs there, the program runs, and a purge leaves nothing.
func TestRootPackageInEmptyRoot(t *testing.T) {
	clitest.TakesSeconds(t)
	netlabtest.Root(t)
	netlabtest.Tools(t, "dpkg", "busybox", "chroot")
	deb := makePackages(t, t.TempDir(), netlabtest.Weir(t), "v1.0.0", "-formats", "deb", "-compression", "none")[0]
	root := t.TempDir()
	shell, err := exec.LookPath("busybox")
	clitest.Must(t, err)
	text, err := os.ReadFile(shell)
	clitest.Must(t, err)
	for _, directory := range []string{"bin", "etc", "sbin", "usr/bin", "usr/sbin", "var/lib/dpkg/info", "var/lib/dpkg/updates", "dev", "tmp"} {
		clitest.Must(t, os.MkdirAll(filepath.Join(root, directory), 0o755))
	}
	clitest.Must(t, os.WriteFile(filepath.Join(root, "bin/busybox"), text, 0o755))
	for _, name := range []string{"var/lib/dpkg/status", "var/lib/dpkg/available", "dev/null"} {
		clitest.Must(t, os.WriteFile(filepath.Join(root, name), nil, 0o600))
	}
	inside := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("chroot", append([]string{root}, args...)...)
		cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	inside("/bin/busybox", "--install", "-s", "/bin")
	before := treeOf(t, root)
	dpkg := func(args ...string) {
		t.Helper()
		args = append([]string{"--root=" + root, "--force-depends", "--force-unsafe-io", "--log=/dev/null"}, args...)
		if out, err := exec.Command("dpkg", args...).CombinedOutput(); err != nil {
			t.Fatalf("dpkg %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	dpkg("-i", deb)
	for _, name := range []string{"lb", "coap", "turn"} {
		inside("/usr/bin/weir", "check", "/etc/weir/"+name+".yaml")
	}
	dpkg("-P", "weir")
	for path := range treeOf(t, root) {
		if !before[path] {
			t.Errorf("the purge leaves %s", path)
		}
	}
}

// treeOf lists the files below a directory, without those of dpkg itself.
func treeOf(t *testing.T, root string) map[string]bool {
	t.Helper()
	paths := map[string]bool{}
	clitest.Must(t, filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path, root)
		if !strings.HasPrefix(name, "/var/lib/dpkg/") {
			paths[name] = true
		}
		return nil
	}))
	return paths
}

// packageSessions are the DTLS sessions during the upgrade of the package, each with a request per second.
const packageSessions = 1000

// traces is what an installation must not leave.
const traces = "ls -R /etc/weir /run/weir /var/lib/weir /sys/fs/bpf /usr/bin/weir /usr/share/doc/weir /usr/lib/systemd/system/weir* 2>&1; " +
	"grep weir /etc/passwd /etc/group; ps -eo args | grep '^[/]usr/bin/weir'; true"

// A machine with systemd, on which all is done that docs/install.md says: the package is installed, its services run with their own
// privileges and report to systemd, it is upgraded under a thousand DTLS sessions, a thousand TCP connections and TURN allocations, of which nothing is lost, and
// purged.
func TestRootPackageUnderSystemd(t *testing.T) {
	clitest.TakesSeconds(t)
	netlabtest.Root(t)
	netlabtest.Tools(t, "dpkg", "curl", "ps", "pkill")
	dir, weir := t.TempDir(), netlabtest.Weir(t)
	deb := func(version string) string {
		return makePackages(t, t.TempDir(), weir, version, "-formats", "deb", "-compression", "none")[0]
	}
	first, second := deb("v1.0.0"), deb("v1.1.0")
	clitest.Must(t, os.Rename(first, filepath.Join(dir, filepath.Base(first))))
	p := &packaged{Machine: clitest.StartMachine(t, dir), t: t, dir: dir}
	before := p.run("sh", "-c", traces)
	p.run("sh", "-c", "cd "+dir+" && sha256sum *.deb > SHA256SUMS")
	p.section("Install")
	p.run("sh", "-c", "mkdir -p /etc/systemd/system/weir-lb.service.d; printf '[Service]\\nWatchdogSec=3\\n' > /etc/systemd/system/weir-lb.service.d/soon.conf; systemctl daemon-reload")
	p.reload(func() { p.section("Configure and start") })
	for unit, row := range unitNeeds {
		p.privileges(unit, needsOf(row)...)
	}
	p.section("Privileges")
	p.privileges("weir-turn.service", append(needsOf(privilege.TurnOffload), "CAP_NET_BIND_SERVICE")...)
	p.watchdog()
	clitest.Must(t, os.Remove(filepath.Join(dir, filepath.Base(first))))
	text, err := os.ReadFile(second)
	clitest.Must(t, err)
	clitest.Must(t, os.WriteFile(filepath.Join(dir, filepath.Base(second)), text, 0o600))
	p.upgrade()
	p.section("Remove")
	if after := p.run("sh", "-c", traces); before != after {
		t.Errorf("before the installation:\n%s\nafter the purge:\n%s", before, after)
	}
}

// packaged is a machine with the package.
type packaged struct {
	*clitest.Machine
	t   *testing.T
	dir string // of the packages
}

// section runs the commands of a section of docs/install.md.
func (p *packaged) section(title string) {
	p.t.Helper()
	_, text, found := strings.Cut(clitest.ReadPage(p.t, docsFolder+"install.md"), "\n## "+title+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	blocks := strings.Split(text, "\n```bash\n")
	if !found || len(blocks) < 2 {
		p.t.Fatalf("docs/install.md has no commands in %q", title)
	}
	for _, block := range blocks[1:] {
		commands, _, _ := strings.Cut(block, "\n```")
		p.run("bash", "-ec", "cd "+p.dir+"\n"+commands)
	}
}

func (p *packaged) run(args ...string) string {
	p.t.Helper()
	out, err := p.Run(args...)
	if err != nil {
		services, _ := p.Run("systemctl", "--no-pager", "status", "weir-*")
		p.t.Fatalf("%s: %v\n%s\n%s", strings.Join(args, " "), err, out, services)
	}
	return out
}

func (p *packaged) property(unit, name string) string {
	p.t.Helper()
	return p.run("systemctl", "show", "--property="+name, "--value", unit)
}

// privileges checks that a service runs as the user weir with these capabilities and no others.
func (p *packaged) privileges(unit string, needs ...string) {
	p.t.Helper()
	status := p.run("cat", "/proc/"+p.property(unit, "MainPID")+"/status")
	field := func(name string) string {
		_, rest, _ := strings.Cut(status, "\n"+name+":\t")
		line, _, _ := strings.Cut(rest, "\n")
		return line
	}
	uid := p.run("id", "-u", "weir")
	if got := strings.Fields(field("Uid")); uid == "0" || len(got) != 4 || got[0] != uid || got[1] != uid {
		p.t.Errorf("%s runs as %v, the user weir is %s", unit, got, uid)
	}
	sets := map[string]string{}
	for _, name := range []string{"CapEff", "CapBnd", "CapAmb"} {
		sets[name] = field(name)
	}
	numbers := map[string]uint{"CAP_NET_BIND_SERVICE": 10, "CAP_NET_ADMIN": 12, "CAP_PERFMON": 38, "CAP_BPF": 39}
	var want uint64
	for _, capability := range needs {
		want |= 1 << numbers[capability]
	}
	for name, set := range sets {
		if got, err := strconv.ParseUint(set, 16, 64); err != nil || got != want {
			p.t.Errorf("%s: %s is %s, want %016x", unit, name, set, want)
		}
	}
}

// reload checks that a reload of the load balancer, with which start ends, returns when the file is in force.
func (p *packaged) reload(start func()) {
	p.t.Helper()
	start()
	if out := p.run("weir", "lb", "show"); !strings.Contains(out, "7003") {
		p.t.Errorf("after the reload:\n%s", out)
	}
	if state := p.property("weir-lb", "ActiveState"); state != "active" {
		p.t.Errorf("after the reload the service is %s", state)
	}
}

// watchdog checks that a load balancer which hangs is replaced.
func (p *packaged) watchdog() {
	p.t.Helper()
	before := p.property("weir-lb", "MainPID")
	p.run("kill", "-STOP", before)
	p.run("tail", "--pid="+before, "-f", "/dev/null") // until the watchdog has ended it; each systemctl costs more
	netlabtest.Eventually(p.t, "the watchdog replaces the load balancer that hangs", func() bool {
		pid := p.property("weir-lb", "MainPID")
		return pid != before && pid != "0" && p.property("weir-lb", "ActiveState") == "active"
	})
	if result := p.property("weir-lb", "NRestarts"); result != "1" {
		p.t.Errorf("%s restarts", result)
	}
	p.run("sh", "-c", "rm -r /etc/systemd/system/weir-lb.service.d; systemctl daemon-reload") // so short a time ends one that waits for a processor
}

// upgrade installs the second version under load.
func (p *packaged) upgrade() {
	p.t.Helper()
	load := p.Command("weir", "coap", "bench", "coaps://127.0.0.1:5684/benchmark", "--clients", strconv.Itoa(packageSessions), "--interval", "1s", "--duration", "10m", "--json", "--progress", "json")
	var out bytes.Buffer
	progress := new(clitest.LockedBuffer)
	load.Stdout, load.Stderr = &out, progress
	clitest.Must(p.t, clitest.StartChild(load))
	clitest.WaitFor(p.t, progress, "Benchmark started") // each client has its session
	p.wantSessions()
	others := p.startLoad()
	pids := map[string]string{}
	for unit := range unitNeeds {
		pids[unit] = p.property(unit, "MainPID")
	}
	p.section("Upgrade")
	upgraded := time.Now()
	for unit := range unitNeeds {
		if pid := p.property(unit, "MainPID"); pid == pids[unit] || p.property(unit, "ActiveState") != "active" {
			p.t.Errorf("%s after the upgrade: process %s as before, %s", unit, pid, p.property(unit, "ActiveState"))
		}
	}
	if kept := p.run("cat", "/etc/weir/lb.yaml"); !strings.Contains(kept, "port: 7003") {
		p.t.Errorf("the upgrade has replaced the configuration:\n%s", kept)
	}
	others.end()
	netlabtest.Eventually(p.t, "every client has answers of the upgraded server", func() bool { return allAnswered(progress.String(), upgraded) }, progress.String)
	p.wantSessions()
	p.run("pkill", "-INT", "-f", "weir coap bench")
	var result v1.CoAPBench
	if err := errors.Join(load.Wait(), json.Unmarshal(out.Bytes(), &result)); err != nil {
		p.t.Fatalf("load: %v\n%s\n%s", err, progress.String(), out.String())
	}
	if s := result.Stats; s.Requests < packageSessions || s.Lost != 0 || s.Rehandshakes != 0 || s.Handshakes != packageSessions {
		p.t.Errorf("load: %+v", s)
	}
}

// allAnswered reports whether no client waits for an answer to a request of before, and there were two answers for each client since then.
func allAnswered(progress string, before time.Time) bool {
	var first, last v1.CoAPBenchSample
	for line := range strings.Lines(progress) {
		var sample v1.CoAPBenchSample
		if json.Unmarshal([]byte(line), &sample) != nil || sample.At.Before(before) {
			continue
		}
		if last = sample; first.At.IsZero() {
			first = sample
		}
	}
	waiting := time.Duration(last.Waiting * float64(time.Millisecond))
	return last.At.Add(-waiting).After(before) && last.Total.Requests >= first.Total.Requests+2*packageSessions
}

// wantSessions checks that the CoAP server has a DTLS session of each client.
func (p *packaged) wantSessions() {
	p.t.Helper()
	sessions := 0
	var status v1.CoAPStatus
	clitest.Must(p.t, json.Unmarshal([]byte(p.run("curl", "-sf", "--unix-socket", "/run/weir/coap.sock", "http://localhost/status")), &status))
	for _, l := range status.Listeners {
		sessions += int(l.Engine.Sessions)
	}
	if sessions != packageSessions {
		p.t.Errorf("the server has %d sessions, of %d clients", sessions, packageSessions)
	}
}
