package coap

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// californium4 has the names of 3.x by which 4.x calls the same things.
var californium4 = strings.NewReplacer("AdvancedSinglePskStore", "SinglePskStore", "AdvancedMultiPskStore", "MultiPskStore", "AdvancedPskStore", "PskStore",
	"StaticNewAdvancedCertificateVerifier", "StaticCertificateVerifier", "setAdvancedCertificateVerifier", "setCertificateVerifier",
	"core.server.resources.CoapExchange", "core.CoapExchange")

var building sync.Mutex

// buildCalifornium compiles the harness with Maven for a major version of Californium, 3 or 4, once per version of its sources, and
// returns the directory with its classes. For version 4 it has Client and Peer alone.
func buildCalifornium(t testing.TB, major int) string {
	t.Helper()
	building.Lock() // one build serves all tests
	defer building.Unlock()
	netlabtest.Tools(t, "java", "mvn")
	const project = "testdata/californium"
	sources := map[string][]byte{}
	sum := sha256.New()
	sum.Write([]byte("without signatures")) // what buildCalifornium does with the files is a part of their version
	if err := filepath.WalkDir(project, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		sum.Write(text)
		sources[entry.Name()] = text
		return err
	}); err != nil {
		t.Fatal(err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	cache = filepath.Join(cache, "weir")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		t.Fatal(err)
	}
	name := map[int]string{3: "californium", 4: "californium4"}[major]
	home := filepath.Join(cache, fmt.Sprintf("%s-%x", name, sum.Sum(nil)[:8]))
	if _, err := os.Stat(home); err == nil {
		return home
	}
	scratch, err := os.MkdirTemp(cache, "build-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(scratch)
	args := []string{"-q", "-B", "-f", filepath.Join(project, "pom.xml"), "-Dweir.build=" + scratch, fmt.Sprintf("-Pv%d", major), "compile", "dependency:copy-dependencies", "-DincludeScope=runtime"}
	if major == 4 {
		renamed := t.TempDir()
		for _, name := range []string{"Client.java", "Peer.java"} {
			if err := os.WriteFile(filepath.Join(renamed, name), []byte(californium4.Replace(string(sources[name]))), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		args = append(args, "-Dweir.sources="+renamed)
	}
	runMaven(t, args)
	if err := unsign(filepath.Join(scratch, "dependency")); err != nil {
		t.Fatal(err)
	}
	if err := writeJar(filepath.Join(scratch, jar), filepath.Join(scratch, "classes")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(scratch, home); err != nil && !os.IsExist(err) {
		if _, taken := os.Stat(home); taken != nil { // another test process may have been first
			t.Fatal(err)
		}
	}
	return home
}

// jar is the file with the classes of the harness: an archive of loaded classes takes those of jars alone.
const jar = "weir.jar"

// writeJar writes what a directory has into a file.
func writeJar(name, directory string) (err error) {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	w := zip.NewWriter(file)
	return errors.Join(w.AddFS(os.DirFS(directory)), w.Close())
}

// unsign takes the signatures from the jars of a directory. A start of Java verifies the classes of signed jars each time, which is half of
// what it takes, and puts none of them into an archive of classes.
func unsign(directory string) error {
	jars, err := filepath.Glob(filepath.Join(directory, "*.jar"))
	for _, name := range jars {
		err = errors.Join(err, unsignJar(name))
	}
	return err
}

func unsignJar(name string) (err error) {
	jar, err := zip.OpenReader(name)
	if err != nil {
		return err
	}
	defer jar.Close()
	signature := func(entry *zip.File) bool {
		return filepath.Dir(entry.Name) == "META-INF" && slices.Contains([]string{".SF", ".RSA", ".DSA", ".EC"}, filepath.Ext(entry.Name))
	}
	if !slices.ContainsFunc(jar.File, signature) {
		return nil
	}
	file, err := os.Create(name + ".unsigned")
	if err != nil {
		return err
	}
	w := zip.NewWriter(file)
	for _, entry := range jar.File {
		if !signature(entry) && !entry.Mode().IsDir() {
			err = errors.Join(err, w.Copy(entry))
		}
	}
	return errors.Join(err, w.Close(), file.Close(), os.Rename(file.Name(), name))
}

// runMaven tries three times, because it downloads.
func runMaven(t testing.TB, args []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	for try := 1; ; try++ {
		output, err := exec.CommandContext(ctx, "mvn", args...).CombinedOutput()
		if err == nil {
			return
		}
		if try == 3 || ctx.Err() != nil {
			t.Fatalf("mvn: %v\n%s", err, output)
		}
		t.Logf("mvn, try %d: %v\n%s", try, err, output)
	}
}

// startCalifornium starts a client with one DTLS session and socket for all its requests to a server.
func startCalifornium(t testing.TB, cidLength int, identity, secret, suite string) *peer {
	t.Helper()
	return startJava(t, 3, "weir.Client", strconv.Itoa(cidLength), identity, secret, suite)
}

// session begins with another socket and other arguments of a started weir.Client, for the rest of t: its process takes longer to start than most sessions.
func (c *peer) session(t testing.TB, args ...string) {
	t.Helper()
	c.t = t
	if _, err := fmt.Fprintln(c.in, "SESSION "+strings.Join(args, " ")); err != nil {
		t.Fatal(err)
	}
	c.ready()
}

// java is a class of the harness as a process. It ends before its code is worth more than the first compiler's time.
func java(home, class string, args ...string) *exec.Cmd {
	options := []string{"-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", filepath.Join(home, jar) + ":" + filepath.Join(home, "dependency", "*")}
	return exec.Command("java", append(append(options, class), args...)...)
}

// startJava runs a class of the harness until the test ends. Half of the start of a process goes into reading and verifying classes:
// the first process of each class writes an archive of what it has loaded, and the others map that.
func startJava(t testing.TB, major int, class string, args ...string) *peer {
	t.Helper()
	home := buildCalifornium(t, major)
	process := java(home, class, args...)
	archive := filepath.Join(home, class+".jsa")
	option := "-XX:SharedArchiveFile=" + archive
	if _, err := os.Stat(archive); err != nil && class == "weir.Client" && args[0] == "UDP" { // it loads few classes
		option = "-Xshare:auto"
	} else if err != nil {
		written := fmt.Sprintf("%s.%d.%s", archive, os.Getpid(), filepath.Base(t.TempDir()))
		option = "-XX:ArchiveClassesAtExit=" + written
		t.Cleanup(func() { _ = os.Rename(written, archive) }) // after the end of the process; without it the next one is as slow
	}
	process.Args = slices.Insert(process.Args, 1, option)
	c := runPeer(t, process)
	c.ready()
	return c
}
