// Command licences checks the licences of all Go modules that weir and its tests consist of: each package needs a licence file, and each
// licence has to be in the list of allowed ones. -o FILE writes the texts of those that are linked into weir, which its packages carry;
// -spdx FILE writes their SPDX expressions by module, for the bill of materials.
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// allowed are the licences under which a module may be linked: permissive ones.
var allowed = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT"}

// module is a module of others, with the licence files that hold for the packages in use.
type module struct {
	path, version, dir string
	files              map[string][]string // path of the file to its licences
}

func main() {
	out := flag.String("o", "", "file that gets the texts of the licences of what is linked into weir")
	spdx := flag.String("spdx", "", "file that gets the SPDX expressions of what is linked into weir, as JSON")
	flag.Parse()
	if err := run(*out, *spdx); err != nil {
		fmt.Fprintln(os.Stderr, "licences:", err)
		os.Exit(1)
	}
}

func run(out, spdx string) error {
	args := []string{"-test", "./..."}
	if out != "" || spdx != "" {
		args = []string{"./cmd/weir"}
	}
	modules, err := modulesOf(args...)
	if err != nil {
		return err
	}
	counts, wrong := map[string]int{}, []error{}
	for _, m := range modules {
		names := m.licences()
		wrong = append(wrong, m.check(names)...)
		counts[strings.Join(names, ", ")]++
	}
	for _, names := range slices.Sorted(maps.Keys(counts)) {
		fmt.Printf("%4d  %s\n", counts[names], names)
	}
	fmt.Printf("licences: %d modules\n", len(modules))
	if err := errors.Join(wrong...); err != nil {
		return err
	}
	if out != "" {
		err = os.WriteFile(out, texts(modules), 0o644) //nolint:gosec // for everybody to read
	}
	if spdx != "" {
		err = errors.Join(err, os.WriteFile(spdx, expressions(modules), 0o644)) //nolint:gosec // as above
	}
	return err
}

// expressions are the licences of each module as an SPDX expression: all of them hold, each for the files it stands next to.
func expressions(modules []*module) []byte {
	by := map[string]string{}
	for _, m := range modules {
		by[m.path] = strings.Join(m.licences(), " AND ")
	}
	text, _ := json.MarshalIndent(by, "", "  ") // strings
	return append(text, '\n')
}

// modulesOf lists the modules of packages and of all that they import, by path.
func modulesOf(args ...string) ([]*module, error) {
	format := `{{with .Module}}{{if not .Main}}{{.Path}}|{{.Version}}|{{.Dir}}|{{$.Dir}}{{end}}{{end}}`
	cmd := exec.Command("go", append([]string{"list", "-deps", "-f", format}, args...)...)
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	byPath := map[string]*module{}
	for line := range strings.Lines(string(text)) {
		part := strings.Split(strings.TrimSpace(line), "|")
		if len(part) != 4 {
			continue // of this module or of the standard library
		}
		m := byPath[part[0]]
		if m == nil {
			m = &module{path: part[0], version: part[1], dir: part[2], files: map[string][]string{}}
			byPath[m.path] = m
		}
		if err := m.add(part[3]); err != nil {
			return nil, err
		}
	}
	var all []*module
	for _, m := range byPath {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b *module) int { return cmp.Compare(a.path, b.path) })
	return all, nil
}

var fileName = regexp.MustCompile(`(?i)^(licen[sc]e|copying|unlicense)([.-].*)?$`)

// add adds the licence files of a package: those in its directory, and in each one above up to the module's.
func (m *module) add(dir string) error {
	for ; strings.HasPrefix(dir, m.dir); dir = filepath.Dir(dir) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, entry := range entries {
			path := filepath.Join(dir, entry.Name())
			if _, known := m.files[path]; known || entry.IsDir() || !fileName.MatchString(entry.Name()) || strings.HasSuffix(entry.Name(), ".go") {
				continue
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			m.files[path] = licencesIn(text)
		}
	}
	return nil
}

// licencesIn names the licences whose text this is, by sentences that only they have.
func licencesIn(text []byte) (names []string) {
	words := strings.ToLower(string(bytes.Join(bytes.Fields(text), []byte(" "))))
	has := func(sentence string) bool { return strings.Contains(words, sentence) }
	found := map[string]bool{
		"Apache-2.0": has("apache license") && (has("version 2.0") || has("/licenses/license-2.0")),
		"MIT":        has("permission is hereby granted, free of charge, to any person obtaining a copy"),
		"ISC":        has("permission to use, copy, modify, and/or distribute this software for any purpose with or without fee") || has("permission to use, copy, modify, and distribute this software for any purpose with or without fee"),
		"MPL-2.0":    has("mozilla public license") && has("version 2.0"),
		"Unlicense":  has("this is free and unencumbered software released into the public domain"),
	}
	if has("redistribution and use in source and binary forms") {
		third := has("neither the name") || has("may be used to endorse or promote") || has("may not be used to endorse")
		found["BSD-3-Clause"], found["BSD-2-Clause"] = third, !third
	}
	if !found["MPL-2.0"] { // its text names them
		for name, title := range map[string]string{"AGPL": "gnu affero general public license", "LGPL": "gnu lesser general public license", "GPL": "gnu general public license"} {
			found[name] = has(title)
		}
	}
	for name, is := range found {
		if is {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// licences are those of all files.
func (m *module) licences() (names []string) {
	for _, some := range m.files {
		names = append(names, some...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (m *module) check(names []string) (wrong []error) {
	if len(m.files) == 0 {
		wrong = append(wrong, fmt.Errorf("%s %s has no licence file", m.path, m.version))
	}
	for path, some := range m.files {
		if len(some) == 0 {
			wrong = append(wrong, fmt.Errorf("%s %s: the licence in %s is not known", m.path, m.version, path))
		}
	}
	for _, name := range names {
		if !slices.Contains(allowed, name) {
			wrong = append(wrong, fmt.Errorf("%s %s is licensed under %s; allowed are %s", m.path, m.version, name, strings.Join(allowed, ", ")))
		}
	}
	return wrong
}

// texts is the file that packages of weir carry.
func texts(modules []*module) []byte {
	var b bytes.Buffer
	b.WriteString("Weir contains these modules, under their own licences.\n")
	for _, m := range modules {
		fmt.Fprintf(&b, "\n%s\n%s %s: %s\n", strings.Repeat("=", 80), m.path, m.version, strings.Join(m.licences(), ", "))
		for _, path := range slices.Sorted(maps.Keys(m.files)) {
			name, _ := filepath.Rel(m.dir, path)
			text, _ := os.ReadFile(path) // it was read before
			fmt.Fprintf(&b, "\n-- %s\n\n%s\n", name, bytes.TrimSpace(text))
		}
	}
	return b.Bytes()
}
