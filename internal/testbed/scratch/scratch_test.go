package scratch

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

const holdOne = "WEIR_TEST_HOLD_ONE"

func TestMain(m *testing.M) {
	if os.Getenv(holdOne) == "" {
		os.Exit(m.Run())
	}
	dir, err := New()
	if err == nil {
		err = os.WriteFile(filepath.Join(dir.Path, "weir.yaml"), nil, 0o600)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(dir.Path)
	_, _ = os.Stdin.Read(make([]byte, 1)) // until we are killed
}

func exists(t *testing.T, path string) bool {
	t.Helper()
	_, err := os.Lstat(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return err == nil
}

// A directory whose Dir nothing refers to any more stays until the process ends.
func TestForgottenDirStays(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	path := func() string {
		dir, err := New()
		if err != nil {
			t.Fatal(err)
		}
		return dir.Path
	}()
	for range 3 {
		runtime.GC()
	}
	other, err := New()
	if err != nil {
		t.Fatal(err)
	}
	if !exists(t, path) {
		t.Error("it was removed as if its process had ended")
	}
	if err := errors.Join(other.Remove(), other.Remove()); err != nil {
		t.Error(err)
	}
}

// What a killed process left is gone after the next start; what a living one has, and what is not ours, stays.
func TestKilledProcessLeavesNothingForLong(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	other := filepath.Join(temp, "weir-bench-notes")
	link := filepath.Join(temp, prefix+"link")
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(other, link); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holdOne+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill() //nolint:errcheck // it may have ended
	line, err := bufio.NewReader(out).ReadString('\n')
	left := strings.TrimSpace(line)
	if err != nil || !exists(t, left) {
		t.Fatalf("%q, %v", line, err)
	}
	first, err := New()
	if err != nil {
		t.Fatal(err)
	}
	if !exists(t, left) {
		t.Error("a start swept what a living process holds")
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if !exists(t, left) {
		t.Fatal("the killed process has tidied up: this proves nothing")
	}
	second, err := New()
	if err != nil {
		t.Fatal(err)
	}
	if exists(t, left) {
		t.Error("the next start left what the killed process had")
	}
	if !exists(t, first.Path) || !exists(t, other) || !exists(t, link) {
		t.Error("a start swept a directory of this process, or one that is not ours")
	}
	for _, dir := range []*Dir{first, second, second} {
		if err := dir.Remove(); err != nil || exists(t, dir.Path) {
			t.Errorf("%s: %v", dir.Path, err)
		}
	}
}

// A process that ends at once takes its own directories with it, and no other's.
func TestAbandonDeletesTheOwnOnes(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	first, err := New()
	if err != nil {
		t.Fatal(err)
	}
	second, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer first.Remove()
	defer second.Remove()
	other := filepath.Join(os.TempDir(), prefix+"other")
	if err := errors.Join(os.Mkdir(other, 0o700), os.WriteFile(filepath.Join(first.Path, "file"), nil, 0o600), Abandon()); err != nil {
		t.Fatal(err)
	}
	if exists(t, first.Path) || exists(t, second.Path) || !exists(t, other) {
		t.Error("a directory of this process stays, or another's has gone")
	}
}

// Many that start at once neither fail nor sweep each other away.
func TestStartsAtOnce(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var wait sync.WaitGroup
	for range 16 {
		wait.Go(func() {
			for range 20 {
				dir, err := New()
				if err != nil {
					t.Error(err)
					return
				}
				if err := os.WriteFile(filepath.Join(dir.Path, "file"), nil, 0o600); err != nil {
					t.Error(err)
				}
				if err := dir.Remove(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
}
