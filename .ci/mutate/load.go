package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// source is one parsed file of a package without its tests.
type source struct {
	path string // absolute
	text []byte
	file *ast.File
}

// target is one package that is parsed and type-checked.
type target struct {
	path, name, dir string
	fset            *token.FileSet
	info            *types.Info
	pkg             *types.Package
	sources         []*source
}

// listed is what `go list -export -deps -json` says of a package.
type listed struct {
	Dir, ImportPath, Name, Export string
	GoFiles                       []string
	DepOnly                       bool
}

// load parses and checks the packages that match the patterns. Imports come from the export data of the build cache.
func load(patterns []string) ([]*target, error) {
	list := exec.Command("go", append([]string{"list", "-export", "-deps", "-json=Dir,ImportPath,Name,Export,GoFiles,DepOnly"}, patterns...)...)
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	exports := map[string]string{}
	var wanted []listed
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		exports[p.ImportPath] = p.Export
		if !p.DepOnly && len(p.GoFiles) > 0 {
			wanted = append(wanted, p)
		}
	}
	targets := make([]*target, len(wanted))
	for i, p := range wanted {
		if targets[i], err = check(p, exports); err != nil {
			return nil, fmt.Errorf("%s: %w", p.ImportPath, err)
		}
	}
	return targets, nil
}

func check(p listed, exports map[string]string) (*target, error) {
	t := &target{path: p.ImportPath, name: p.Name, dir: p.Dir, fset: token.NewFileSet(), info: &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}}
	var files []*ast.File
	for _, name := range p.GoFiles {
		path := filepath.Join(p.Dir, name)
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		file, err := parser.ParseFile(t.fset, path, text, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		t.sources = append(t.sources, &source{path: path, text: text, file: file})
		files = append(files, file)
	}
	open := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	config := types.Config{Importer: importer.ForCompiler(t.fset, "gc", open)}
	var err error
	t.pkg, err = config.Check(p.ImportPath, t.fset, files, t.info)
	return t, err
}
