package main

import (
	"encoding"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"reflect"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/coap/node"
	"github.com/weir-lb/weir/internal/snat"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/turn/gateway"
)

// option is a key of a configuration file.
type option struct {
	path  string // such as services[].backends[].weight
	field reflect.StructField
	owner reflect.Type
}

// optionsOf returns the keys of a type, each before those below it.
func optionsOf(t reflect.Type, at string) (all []option) {
	for i := range t.NumField() {
		field := t.Field(i)
		key, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		if key == "" || key == "-" {
			continue
		}
		path, below := at+key, field.Type
		for below.Kind() == reflect.Pointer || below.Kind() == reflect.Slice {
			if below.Kind() == reflect.Slice && elementOf(below).Kind() == reflect.Struct && !isText(elementOf(below)) {
				path += "[]"
			}
			below = below.Elem()
		}
		all = append(all, option{path, field, t})
		if below.Kind() == reflect.Struct && !isText(below) {
			all = append(all, optionsOf(below, path+".")...)
		}
	}
	return all
}

func elementOf(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	return t
}

// isText reports whether a value is written as one text.
func isText(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// typeText is the type of a key for people.
func typeText(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return typeText(t.Elem())
	case reflect.Slice:
		element := typeText(t.Elem())
		if strings.HasSuffix(element, "x") {
			return "list of " + element + "es"
		}
		return "list of " + element + "s"
	case reflect.Map:
		return typeText(t.Elem()) + " by name"
	}
	names := map[string]string{
		"time.Duration": "duration", "lb.Timeout": "duration", "netip.Addr": "address", "netip.AddrPort": "address and port",
		"netip.Prefix": "prefix", "lb.AddressPrefix": "prefix", "lb.PortRange": "port range", "gateway.PortRange": "port range",
		"lb.ByteMatch": "comparison", "gateway.ByteRate": "rate", "gateway.ByteSize": "size", "lb.HexKey": "key",
	}
	if name, ok := names[t.String()]; ok {
		return name
	}
	switch t.Kind() {
	case reflect.Struct:
		if isText(t) {
			return "text"
		}
		return "section"
	case reflect.Bool:
		return "true or false"
	case reflect.Float64:
		return "number"
	case reflect.String:
		return "text"
	}
	if isText(t) {
		return "text"
	}
	return "whole number"
}

// fieldComments are the comments of the fields of a package's structs, by type and field.
func fieldComments(t *testing.T, pkg string) map[string]map[string]string {
	t.Helper()
	//nolint:staticcheck // one folder without build constraints: go/packages would load all of its dependencies
	parsed, err := parser.ParseDir(token.NewFileSet(), "../../"+strings.TrimPrefix(pkg, module), func(f fs.FileInfo) bool {
		return !strings.HasSuffix(f.Name(), "_test.go")
	}, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]map[string]string{}
	for _, p := range parsed {
		ast.Inspect(p, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if s, ok := spec.Type.(*ast.StructType); ok {
				all[spec.Name.Name] = map[string]string{}
				for _, field := range s.Fields.List {
					text := strings.Join(strings.Fields(field.Doc.Text()+field.Comment.Text()), " ")
					for _, name := range field.Names {
						all[spec.Name.Name][name.Name] = strings.TrimSuffix(strings.TrimPrefix(text, name.Name+": "), ".")
					}
				}
			}
			return true
		})
	}
	return all
}

// boundsText is what a key's tags say about its values.
func boundsText(tag reflect.StructTag) string {
	if values := tag.Get("values"); values != "" {
		return "`" + strings.ReplaceAll(values, ", ", "`, `") + "`"
	}
	return tag.Get("range") + tag.Get("bounds")
}

func optionTables(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	comments := map[string]map[string]map[string]string{}
	for _, kind := range []struct {
		title, about string
		spec         any
	}{
		{"Load balancer", "The file of `weir lb run`. More: [lb-config.md](lb-config.md), [connection ids](lb-cid.md), [flow rules and tiers](lb-mark.md).", lb.Spec{}},
		{"CoAP server", "The file of `weir coap server`. More: [coap-server.md](coap-server.md), [clusters](coap-cluster.md).", node.Config{}},
		{"TURN gateway", "The file of `weir turn gateway`. More: [turn-config.md](turn-config.md). STUNner's own format: [turn-stunner.md](turn-stunner.md).", gateway.Config{}},
		{"SNAT scenarios", "The file of `weir snat plan` and `simulate`. More: [snat-config.md](snat-config.md).", snat.File{}},
	} {
		fmt.Fprintf(&b, "## %s\n\n%s\n\n| key | type | default | values | meaning |\n|---|---|---|---|---|\n", kind.title, kind.about)
		for _, o := range optionsOf(reflect.TypeOf(kind.spec), "") {
			pkg := o.owner.PkgPath()
			if comments[pkg] == nil {
				comments[pkg] = fieldComments(t, pkg)
			}
			comment := comments[pkg][o.owner.Name()][o.field.Name]
			if comment == "" {
				t.Errorf("%s: %s of %s.%s has no comment", kind.title, o.path, o.owner, o.field.Name)
				continue
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", o.path, typeText(o.field.Type), cell(o.field.Tag.Get("default")), cell(boundsText(o.field.Tag)), cell(sentence(comment)))
		}
		b.WriteString("\n")
	}
	return b.String()
}

func TestThePageOfOptionsIsCurrent(t *testing.T) {
	checkGenerated(t, "options.md", "options", optionTables(t))
}
