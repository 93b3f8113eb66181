package bpf

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestNoConstantIsCopiedByHand reads the Go sources of all that share memory with the programs: no constant there has the name
// of one in C, or says that it is a copy. constants.go hands constants over.
func TestNoConstantIsCopiedByHand(t *testing.T) {
	inC := constantsInC(t)
	if len(inC) < 100 || !inC["expiryshift"] || !inC["flowproven"] || !inC["eventheld"] {
		t.Fatalf("%d constants found in the headers: the test reads them wrongly", len(inC))
	}
	files := 0
	for _, dir := range []string{"..", "../../fastpath", "../../kernelnat", "../../../turn/kernelrelay", "../../../bench/programcost"} {
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_bpfel.go") {
				return err
			}
			files++
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, path, nil, parser.ParseComments)
			if err != nil {
				return err
			}
			for _, name := range copies(file, inC) {
				t.Errorf("%s: constant %s is one of the programs': take bpf.%[2]s, or add it to constants.go", path, name)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if files < 40 {
		t.Errorf("only %d files were read", files)
	}
}

// The rule itself finds what it is for.
func TestCopiesAreFound(t *testing.T) {
	for source, want := range map[string]int{
		"const expiryShift = 27":                                      1,
		"// These mirror enum limits.\nconst a, b = 1, 2":             2,
		"// Values of relay_entry.state in turn.h.\nconst off = iota": 1,
		"const (\n\tx = 3 // flow.h\n)":                               1,
		"const expiryShift = bpf.ExpiryShift\nconst other = 27":       0,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\n\n"+source+"\n", parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if got := copies(file, map[string]bool{"expiryshift": true}); len(got) != want {
			t.Errorf("%s: found %v, want %d", source, got, want)
		}
	}
}

// constantsInC are the enumerators and macros of the programs, in small letters without underscores.
func constantsInC(t *testing.T) map[string]bool {
	t.Helper()
	headers, err := filepath.Glob("*.[hc]")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	enum, name := regexp.MustCompile(`(?s)enum(?:\s+\w+)?\s*\{(.*?)\}`), regexp.MustCompile(`(?m)(?:^|[,{]|\s)([A-Z][A-Z0-9_]{2,})\s*(?:=|,|$)`)
	macro := regexp.MustCompile(`(?m)^#define\s+([A-Z][A-Z0-9_]+)\s`)
	for _, header := range headers {
		text, err := os.ReadFile(header)
		if err != nil {
			t.Fatal(err)
		}
		found := macro.FindAllStringSubmatch(string(text), -1)
		for _, body := range enum.FindAllStringSubmatch(string(text), -1) {
			found = append(found, name.FindAllStringSubmatch(strings.ReplaceAll(body[1], ",", ",\n")+",", -1)...)
		}
		for _, f := range found {
			names[strings.ToLower(strings.ReplaceAll(f[1], "_", ""))] = true
		}
	}
	return names
}

// copies are the constants of a file that are written by hand and have a name in C, or a comment that says where they are from.
func copies(file *ast.File, inC map[string]bool) (names []string) {
	saysSo := regexp.MustCompile(`\bmirrors?\b|\b(?:` + strings.Join(sourceNames(), "|") + `)`)
	for _, d := range file.Decls {
		decl, ok := d.(*ast.GenDecl)
		if !ok || decl.Tok != token.CONST {
			continue
		}
		for _, s := range decl.Specs {
			spec := s.(*ast.ValueSpec)
			if !byHand(spec) {
				continue
			}
			comment := decl.Doc.Text() + spec.Doc.Text() + spec.Comment.Text()
			for _, id := range spec.Names {
				if inC[strings.ToLower(id.Name)] || saysSo.MatchString(comment) {
					names = append(names, id.Name)
				}
			}
		}
	}
	return names
}

// sourceNames are those of the programs; linux/*.h are none of ours.
func sourceNames() (names []string) {
	sources, _ := filepath.Glob("*.[hc]") // the pattern is right
	for _, source := range sources {
		names = append(names, regexp.QuoteMeta(source))
	}
	return names
}

// byHand says whether no value refers to a constant of another package.
func byHand(spec *ast.ValueSpec) bool {
	hand := true
	for _, value := range spec.Values {
		ast.Inspect(value, func(n ast.Node) bool {
			_, refers := n.(*ast.SelectorExpr)
			hand = hand && !refers
			return true
		})
	}
	return hand
}
