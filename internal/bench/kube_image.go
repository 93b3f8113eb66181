package bench

import (
	"debug/elf"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// kubeImage makes the root directory of Pods: weir, and the libraries that it needs if it is not linked statically.
func kubeImage(directory, binary string) error {
	for _, name := range []string{"proc", "dev", "tmp", "sys", "run", "usr/bin", "lib64"} {
		if err := os.MkdirAll(filepath.Join(directory, name), 0o755); err != nil { //nolint:gosec // Pods have users of their own
			return err
		}
	}
	if err := copyProgram(filepath.Join(directory, "usr/bin/weir"), binary); err != nil {
		return err
	}
	file, err := elf.Open(binary)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // only read
	libraries, err := file.ImportedLibraries()
	if err != nil || len(libraries) == 0 {
		return nil //nolint:nilerr // it is linked statically
	}
	loaders, err := filepath.Glob("/lib64/ld-linux*.so*")
	if err != nil {
		return err
	}
	for _, loader := range loaders {
		libraries = append(libraries, filepath.Base(loader))
	}
	for _, library := range libraries {
		if err := copyLibrary(directory, library); err != nil {
			return err
		}
	}
	return nil
}

// copyLibrary copies one to where it is here.
func copyLibrary(root, name string) error {
	for _, pattern := range []string{"/lib64/", "/usr/lib64/", "/lib/*-linux-gnu/", "/usr/lib/*-linux-gnu/"} {
		found, err := filepath.Glob(pattern + name)
		if err == nil && len(found) > 0 {
			to := filepath.Join(root, found[0])
			if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil { //nolint:gosec // as above
				return err
			}
			return copyProgram(to, found[0])
		}
	}
	return fmt.Errorf("weir needs %s, which is not found; build it with CGO_ENABLED=0", name)
}

func copyProgram(to, from string) (err error) {
	if _, err := os.Stat(to); err == nil {
		return nil // the loader is a library, too
	}
	source, err := os.Open(from) //nolint:gosec // our own binary and its libraries
	if err != nil {
		return err
	}
	defer source.Close()                                                     //nolint:errcheck // only read
	target, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755) //nolint:gosec // as above
	if err != nil {
		return err
	}
	if _, err = io.Copy(target, source); err != nil {
		_ = target.Close() // the first error counts
		return err
	}
	return target.Close()
}
