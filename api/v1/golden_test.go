package v1_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/api/v1"
)

var update = flag.Bool("update", false, "write the golden files")

// documents are the types that are a whole answer or a whole line of output. All other types are parts of them.
func documents() []any {
	return []any{
		new(v1.OperatorStatus),
		new(v1.LBStatus), new(v1.Applied), new(v1.NATStatus), new(v1.TurnStatus), new(v1.TurnAuthStatus), new(v1.DecapStatus), new(v1.CoAPStatus),
		new(v1.Configuration), new(v1.ConfigRequest), new(v1.ConfigAnswer), new(v1.ConfigDiff), new(v1.ConfigEvent),
		new(v1.ServiceShown), new(v1.OverrideAnswer), new(v1.AnnounceStatus), new(v1.AnnounceAnswer), new(v1.EBPFStopped),
		new(v1.FlowList), new(v1.TraceLine), new(v1.Route), new(v1.Refusal), new(v1.EventList), new(v1.History),
		new(v1.TurnUserList), new(v1.TurnImport), new(v1.TurnUpgradeAnswer), new(v1.CoAPUpgradeAnswer), new(v1.TurnUpgraded), new(v1.CoAPUpgraded), new(v1.CoAPMoved), new(v1.CoAPOwners), new(v1.TurnGateway), new(v1.TurnCat),
		new(v1.CoAPClusterView), new(v1.CoAPExchange), new(v1.CoAPNotification), new(v1.CoAPPing), new(v1.CoAPLink), new(v1.CoAPServerLinks), new(v1.CoAPReceive), new(v1.CoAPCheck), new(v1.CheckResult), new(v1.Explanation), new(v1.RulesReport),
		new(v1.BenchResult), new(v1.TCPReport), new(v1.TCPStats), new(v1.TCPHistory), new(v1.Finding), new(v1.TCPBench), new(v1.TCPComparison),
		new(v1.BenchScenario), new(v1.NATBench), new(v1.ProgramCost), new(v1.TurnBench), new(v1.TurnLoad), new(v1.CoAPBench), new(v1.CoAPBenchSample), new(v1.CoAPBenchRun), new(v1.Demo), new(v1.FragmentSimulation), new(v1.SNATPlan), new(v1.SNATRule), new(v1.SNATRun), new(v1.SNATSize), new(v1.SNATCell),
		new(v1.SNATSimulation), new(v1.SNATSizes), new(v1.SNATLab),
	}
}

// A golden file holds the JSON of a document in which every field has a value. A field that is renamed, removed, moved or that has
// another type breaks programs that read it: that needs v2. One that is added needs -update.
func TestGolden(t *testing.T) {
	want := map[string]bool{}
	for _, document := range documents() {
		name := nameOf(reflect.TypeOf(document).Elem())
		path := filepath.Join("testdata", name+".json")
		want[path] = true
		fill(t, reflect.ValueOf(document).Elem(), name)
		if shown, ok := document.(*v1.ServiceShown); ok {
			shown.ServiceStatus.Flows = nil // hidden by the live flows, which have the same key
		}
		text, err := json.MarshalIndent(document, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, '\n')
		if *update {
			if err := os.WriteFile(path, text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		golden, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(text, golden) {
			t.Errorf("%s: the JSON of %s has changed; if fields were only added, run go test ./api/v1 -update\n%s", path, name, text)
		}
		read := reflect.New(reflect.TypeOf(document).Elem()).Interface()
		decoder := json.NewDecoder(bytes.NewReader(golden))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(read); err != nil {
			t.Errorf("%s: %v", path, err)
		} else if !reflect.DeepEqual(read, document) {
			t.Errorf("%s is not read as it was written: %+v", path, read)
		}
	}
	files, err := filepath.Glob("testdata/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		if !want[path] {
			t.Errorf("%s belongs to no type: a type was removed or renamed", path)
		}
	}
}

// fill gives every field a value that is not zero and that no other field of its struct has.
func fill(t *testing.T, v reflect.Value, name string) {
	t.Helper()
	number := int64(len(name))
	for _, c := range name {
		number = (number*31 + int64(c)) % 97
	}
	number++
	switch v.Interface().(type) {
	case v1.FindingLevel:
		v.Set(reflect.ValueOf(v1.FindingWarn))
		return
	case json.RawMessage:
		v.SetBytes([]byte(`"` + name + `"`))
		return
	case time.Time:
		v.Set(reflect.ValueOf(time.Date(2026, 1, 2, 3, 4, int(number)%60, 5_000_000, time.UTC)))
		return
	case netip.Addr:
		v.Set(reflect.ValueOf(netip.AddrFrom4([4]byte{192, 0, 2, byte(number)})))
		return
	case netip.AddrPort:
		v.Set(reflect.ValueOf(netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(number)}), uint16(number))))
		return
	case netip.Prefix:
		v.Set(reflect.ValueOf(netip.MustParsePrefix("192.0.2.0/24")))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i), v.Type().Field(i).Name)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem(), name)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(t, v.Index(0), name)
	case reflect.Array:
		for i := range v.Len() {
			fill(t, v.Index(i), fmt.Sprint(name, i))
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(t, key, "key of "+name)
		fill(t, value, name)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Interface: // any JSON
		v.Set(reflect.ValueOf(name))
	case reflect.String:
		v.SetString(name)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(number)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(number))
	case reflect.Float32, reflect.Float64:
		v.SetFloat(float64(number) + 0.5)
	default:
		t.Fatalf("%s: teach fill the kind %s", name, v.Kind())
	}
}

// Every exported struct is a document or a part of one, so that its fields are in a golden file. Every field has a JSON key and a
// comment, and one that may be left out says when.
func TestEveryFieldIsDocumented(t *testing.T) {
	inGolden := map[string]bool{}
	for _, document := range documents() {
		parts(reflect.TypeOf(document), inGolden)
	}
	found := 0
	for name, fields := range structs(t) {
		if !inGolden[name] {
			t.Errorf("%s is in no golden file: add it to documents", name)
		}
		for _, field := range fields {
			comment := strings.ToLower(field.Doc.Text() + field.Comment.Text())
			tag := ""
			if field.Tag != nil {
				tag = reflect.StructTag(strings.Trim(field.Tag.Value, "`")).Get("json")
			}
			found++
			switch {
			case len(field.Names) == 0: // embedded: its fields are looked at where it is declared
			case tag == "" || comment == "":
				t.Errorf("%s.%s: write a JSON key and a comment", name, field.Names[0])
			case strings.Contains(tag, ",omit") && !mentionsAbsence(field, comment):
				t.Errorf("%s.%s can be left out: say when it is absent", name, field.Names[0])
			}
		}
	}
	if found < 200 {
		t.Errorf("only %d fields found", found)
	}
}

// mentionsAbsence accepts a bool without words: absent is false.
func mentionsAbsence(field *ast.Field, comment string) bool {
	kind, ok := field.Type.(*ast.Ident)
	return ok && kind.Name == "bool" || strings.Contains(comment, "absent")
}

func parts(of reflect.Type, into map[string]bool) {
	switch of.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		parts(of.Elem(), into)
	case reflect.Struct:
		if into[nameOf(of)] || of.PkgPath() != reflect.TypeFor[v1.Flow]().PkgPath() {
			return
		}
		into[nameOf(of)] = true
		for i := range of.NumField() {
			parts(of.Field(i).Type, into)
		}
	}
}

// nameOf is the name of a type, of a generic one without Of and its parameters: TCPReport is TCPReportOf[BenchLatency].
func nameOf(of reflect.Type) string {
	name, _, _ := strings.Cut(of.Name(), "[")
	return strings.TrimSuffix(name, "Of")
}

// structs returns the fields of the exported structs of the package, by name.
func structs(t *testing.T) map[string][]*ast.Field {
	t.Helper()
	all := map[string][]*ast.Field{}
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || !spec.Name.IsExported() {
				return true
			}
			if declared, ok := spec.Type.(*ast.StructType); ok {
				all[strings.TrimSuffix(spec.Name.Name, "Of")] = declared.Fields.List
			}
			return true
		})
	}
	return all
}
