package main

import (
	"cmp"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // registers the format
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// packaging says what goes into the packages of one architecture.
type packaging struct {
	binary       string // file of weir
	architecture string // as Go names it
	source       string // directory of the repository
	share        string // directory with man1, bash, zsh, fish: what goes to /usr/share; empty: nothing
	version      string // empty: that of the binary
	out          string // directory
	formats      string // deb, rpm, separated by commas
	compression  string
	time         time.Time
}

// write writes a deb and an rpm. They depend on nothing but their content and the given time: the same files make the same packages.
func (p *packaging) write() error {
	version := p.version
	if version == "" {
		info, err := buildinfo.ReadFile(p.binary)
		if err != nil {
			return err
		}
		version = info.Main.Version
	}
	version, err := packageVersion(version)
	if err != nil {
		return err
	}
	contents, err := p.contents()
	if err != nil {
		return err
	}
	for _, format := range strings.Split(p.formats, ",") {
		if err := p.writeOne(format, version, contents); err != nil {
			return fmt.Errorf("%s: %w", format, err)
		}
	}
	return nil
}

// packageVersion is a version of Go's as deb and rpm order it: what comes before a release has a tilde.
func packageVersion(version string) (string, error) {
	number, found := strings.CutPrefix(version, "v")
	if !found && (version == "" || version[0] < '0' || version[0] > '9') {
		return "", fmt.Errorf("the binary has the version %q: build it in a checkout with commits, or name one with -version", version)
	}
	number, build, dirty := strings.Cut(number, "+")
	release, before, isBefore := strings.Cut(number, "-")
	if isBefore {
		release += "~" + strings.ReplaceAll(before, "-", ".")
	}
	if dirty {
		release += "+" + build
	}
	return release, nil
}

func (p *packaging) writeOne(format, version string, contents files.Contents) (err error) {
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	scripts := filepath.Join(p.source, "deploy", "package")
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: "weir", Arch: p.architecture, Platform: "linux", Version: version, VersionSchema: "none", MTime: p.time,
		Section: "net", Priority: "optional", License: "Apache-2.0", Homepage: "https://github.com/weir-lb/weir", Vendor: "Weir", Maintainer: "Weir <https://github.com/weir-lb/weir>",
		Description: "Balances, terminates and measures UDP and TCP sessions\nLoad balancer in the kernel and in user space, CoAP server with DTLS connection ids, TURN gateway,\nand statistics of TCP connections, as one program.",
		Overridables: nfpm.Overridables{
			Contents: copied(contents),
			Scripts: nfpm.Scripts{
				PostInstall: filepath.Join(scripts, "postinstall.sh"),
				PreRemove:   filepath.Join(scripts, "preremove.sh"), PostRemove: filepath.Join(scripts, "postremove.sh"),
			},
			Deb: nfpm.Deb{Compression: p.compression},
			RPM: nfpm.RPM{Compression: p.compression, BuildHost: "weir", Group: "System Environment/Daemons", Summary: "Balances, terminates and measures UDP and TCP sessions"},
		},
	})
	if err := nfpm.PrepareForPackager(info, format); err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(p.out, packager.ConventionalFileName(info)))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return packager.Package(info, file)
}

// copied is a copy for one packager, which changes what it gets.
func copied(contents files.Contents) (list files.Contents) {
	for _, c := range contents {
		one, info := *c, *c.FileInfo
		one.FileInfo = &info
		list = append(list, &one)
	}
	return list
}

// contents are the files of a package.
func (p *packaging) contents() (files.Contents, error) {
	list := files.Contents{p.entry(p.binary, "/usr/bin/weir", 0o755), p.directory("/etc/weir"), p.directory("/usr/share/doc/weir")}
	in := func(pattern, directory string) ([]string, error) {
		found, err := filepath.Glob(filepath.Join(p.source, pattern))
		if err == nil && len(found) == 0 {
			err = fmt.Errorf("no %s", filepath.Join(p.source, pattern))
		}
		for _, file := range found {
			list = append(list, p.entry(file, filepath.Join(directory, filepath.Base(file)), 0o644))
		}
		return found, err
	}
	_, err := in("deploy/systemd/*.service", "/usr/lib/systemd/system")
	if err != nil {
		return nil, err
	}
	for _, pattern := range []string{"deploy/package/*.yaml", "deploy/package/*.env"} {
		before := len(list)
		if _, err := in(pattern, "/etc/weir"); err != nil {
			return nil, err
		}
		for _, c := range list[before:] {
			c.Type = files.TypeConfigNoReplace
		}
	}
	list = append(list,
		p.entry(filepath.Join(p.source, "deploy/systemd/weir.sysusers"), "/usr/lib/sysusers.d/weir.conf", 0o644),
		p.entry(filepath.Join(p.source, "deploy/systemd/weir.tmpfiles"), "/usr/lib/tmpfiles.d/weir.conf", 0o644),
		p.entry(filepath.Join(p.source, "LICENSE"), "/usr/share/doc/weir/copyright", 0o644),
		p.entry(filepath.Join(p.source, "CHANGELOG.md"), "/usr/share/doc/weir/CHANGELOG.md", 0o644),
	)
	return p.shared(list)
}

// shared adds what the program has written of itself: its manual pages and its completions.
func (p *packaging) shared(list files.Contents) (files.Contents, error) {
	if p.share == "" {
		return list, nil
	}
	err := filepath.WalkDir(p.share, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(p.share, path)
		list = append(list, p.entry(path, filepath.Join("/usr/share", name), 0o644))
		return err
	})
	slices.SortFunc(list, func(a, b *files.Content) int { return cmp.Compare(a.Destination, b.Destination) })
	return list, err
}

func (p *packaging) entry(source, destination string, mode os.FileMode) *files.Content {
	return &files.Content{Source: source, Destination: destination, FileInfo: p.info(mode)}
}

func (p *packaging) directory(path string) *files.Content {
	return &files.Content{Destination: path, Type: files.TypeDir, FileInfo: p.info(0o755)}
}

func (p *packaging) info(mode os.FileMode) *files.ContentFileInfo {
	return &files.ContentFileInfo{Owner: "root", Group: "root", Mode: mode, MTime: p.time}
}
