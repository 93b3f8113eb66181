package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user is the user and group of the process, one that no distribution assigns.
const user = "65532:65532"

// writeImage writes an OCI layout as a tar archive: one index, with an image for each ARCHITECTURE=FILE and the bill of materials of each.
// Nothing in it depends on the time, so the same binaries make the same image.
func writeImage(out, tag string, binaries []string, licences licences) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	var bills []mutate.IndexAddendum
	for _, pair := range binaries {
		architecture, file, ok := strings.Cut(pair, "=")
		if !ok {
			return fmt.Errorf("-binaries %q: write ARCHITECTURE=FILE, such as amd64=bin/weir", pair)
		}
		binary, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		image, err := imageOf(binary, architecture)
		if err != nil {
			return err
		}
		bill, err := attestation(image, binary, architecture, tag, licences)
		if err != nil {
			return err
		}
		bills = append(bills, bill)
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: architecture}}})
	}
	index = mutate.AppendManifests(index, bills...)
	directory, err := os.MkdirTemp("", "weir-image")
	if err != nil {
		return err
	}
	defer os.RemoveAll(directory)
	whole := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), mutate.IndexAddendum{
		Add: index, Descriptor: v1.Descriptor{Annotations: map[string]string{"org.opencontainers.image.ref.name": tag}},
	})
	if _, err := layout.Write(directory, whole); err != nil {
		return err
	}
	return archive(out, directory)
}

// imageOf is an image on no base: the static binary, a link to it, and the directories that volumes are mounted at.
func imageOf(binary []byte, architecture string) (v1.Image, error) {
	content, err := layerOf(binary)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image, err := mutate.AppendLayers(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), layer)
	if err != nil {
		return nil, err
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	return mutate.ConfigFile(image, &v1.ConfigFile{
		OS: "linux", Architecture: architecture, Created: v1.Time{Time: time.Unix(0, 0).UTC()},
		RootFS: file.RootFS,
		Config: v1.Config{
			Entrypoint: []string{"/usr/bin/weir"}, User: user, Env: []string{"PATH=/usr/bin", "XDG_RUNTIME_DIR=/run"},
			Labels: map[string]string{"org.opencontainers.image.title": "weir", "org.opencontainers.image.licenses": "Apache-2.0"},
		},
	})
}

// layerOf is the file system of the image as a tar archive.
func layerOf(binary []byte) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, directory := range []string{"usr/", "usr/bin/", "run/", "tmp/", "etc/", "etc/weir/", "var/", "proc/", "dev/"} {
		mode := int64(0o755)
		if directory == "run/" || directory == "tmp/" {
			mode = 0o1777
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: directory, Mode: mode}); err != nil {
			return nil, err
		}
	}
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "usr/bin/weir", Mode: 0o755, Size: int64(len(binary))}); err != nil {
		return nil, err
	}
	if _, err := w.Write(binary); err != nil {
		return nil, err
	}
	// Under this name the program has stunnerd's command line, which Dataplanes of STUNner's users name.
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: "usr/bin/stunnerd", Linkname: "weir", Mode: 0o777}); err != nil {
		return nil, err
	}
	return out.Bytes(), w.Close()
}

// archive writes the files of a directory as a tar archive, without their times.
func archive(out, directory string) error {
	file, err := os.Create(out)
	if err != nil {
		return err
	}
	w := tar.NewWriter(file)
	err = filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(directory, path)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: filepath.ToSlash(name), Mode: 0o644, Size: int64(len(text))}); err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	})
	return errors.Join(err, w.Close(), file.Close())
}
