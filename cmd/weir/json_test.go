package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// One style of keys in all the JSON and YAML that Weir reads and writes: snake_case, and a time as a number names its unit.
func TestKeysHaveOneStyle(t *testing.T) {
	key := regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
	seen := 0
	for _, root := range []string{".", "../../internal", "../../api"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			// Objects and logs of Kubernetes have keys as its conventions want them.
			if in := filepath.Dir(path); strings.HasSuffix(in, "kube/turn/stunnerv1") || strings.HasSuffix(in, "kube/l4/policyv1alpha1") || strings.HasSuffix(in, "kube/kubelab") {
				return nil
			}
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				field, ok := n.(*ast.Field)
				if !ok || field.Tag == nil {
					return true
				}
				text, err := strconv.Unquote(field.Tag.Value)
				if err != nil {
					t.Errorf("%s: tag %s: %v", files.Position(field.Pos()), field.Tag.Value, err)
					return true
				}
				for _, form := range []string{"json", "yaml"} {
					name, _, _ := strings.Cut(reflect.StructTag(text).Get(form), ",")
					if name == "" || name == "-" {
						continue
					}
					seen++
					if !key.MatchString(name) && name != "iceServers" && name != "iceTransportPolicy" && name != "apiVersion" { // of W3C WebRTC, and of Kubernetes
						t.Errorf("%s: %s key %q is not snake_case", files.Position(field.Pos()), form, name)
					}
					if form == "json" && isDuration(field.Type) && !strings.HasSuffix(name, "_ns") {
						t.Errorf("%s: JSON key %q holds nanoseconds and does not say so: write seconds as NAME_s, milliseconds as NAME_ms", files.Position(field.Pos()), name)
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if seen < 200 {
		t.Errorf("only %d keys found: the test looks in the wrong place", seen)
	}
}

func isDuration(typ ast.Expr) bool {
	selector, ok := typ.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	from, ok := selector.X.(*ast.Ident)
	return ok && from.Name == "time" && selector.Sel.Name == "Duration"
}
