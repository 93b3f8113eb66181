package main

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/coap/node"
	"github.com/weir-lb/weir/internal/testbed/measure"
)

// What is encoded from a type of its own package has the form of its public type, byte for byte: no field more, none less, in the
// same order.
func TestOutputHasItsPublicForm(t *testing.T) {
	result := measure.Result{
		Requests: 7, Elapsed: time.Second, Processes: []measure.Process{{Name: "a", CPU: time.Second, PeakBytes: 3}},
		Samples: []measure.Sample{{At: time.Second, Rate: 1.5, P50: time.Second, P99: time.Second, Max: time.Second, Errors: 3}},
		Events:  []measure.Event{{At: time.Second, What: "text"}},
	}
	fillZeros(reflect.ValueOf(&result).Elem(), 0)
	for _, c := range []struct{ printed, public any }{
		{filled(new(node.Status)), new(v1.CoAPStatus)},
		{&result, new(v1.BenchResult)},
	} {
		printed, err := json.Marshal(c.printed)
		if err != nil {
			t.Fatal(err)
		}
		if err := clitest.ReadStrictly(printed, c.public); err != nil {
			t.Errorf("%T has what %T has not: %v", c.printed, c.public, err)
			continue
		}
		if public, err := json.Marshal(c.public); err != nil || !bytes.Equal(public, printed) {
			t.Errorf("%T is printed as\n%s\n%T would be\n%s\n%v", c.printed, printed, c.public, public, err)
		}
		eachZero(reflect.ValueOf(c.public).Elem(), reflect.TypeOf(c.public).Elem().Name(), func(path string) {
			t.Errorf("%s: %T never has it", path, c.printed)
		})
	}
}

func filled(value any) any {
	fillZeros(reflect.ValueOf(value).Elem(), 0)
	return value
}

// fillZeros gives every exported field that is zero a value; deeper than nested pointers can be, it stops.
func fillZeros(v reflect.Value, depth int) {
	if !v.CanSet() || depth > 10 || !v.IsZero() && v.Kind() != reflect.Struct {
		return
	}
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)))
		return
	case *measure.Latency:
		latency := measure.NewLatency()
		latency.Record(time.Millisecond)
		latency.Record(2 * measure.Longest) // counted as over the range
		v.Set(reflect.ValueOf(latency))
		return
	case netip.AddrPort:
		v.Set(reflect.ValueOf(netip.MustParseAddrPort("192.0.2.1:1")))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillZeros(v.Elem(), depth+1)
	case reflect.Struct:
		for i := range v.NumField() {
			fillZeros(v.Field(i), depth+1)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fillZeros(v.Index(0), depth+1)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fillZeros(key, depth+1)
		fillZeros(value, depth+1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString("text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(3)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(3)
	case reflect.Float64:
		v.SetFloat(1.5)
	}
}

// eachZero calls each with the path of every zero field, in slices too.
func eachZero(v reflect.Value, path string, each func(path string)) {
	switch {
	case v.IsZero():
		each(path)
	case v.Kind() == reflect.Pointer:
		eachZero(v.Elem(), path, each)
	case v.Kind() == reflect.Slice:
		eachZero(v.Index(0), path, each)
	case v.Kind() == reflect.Struct && v.Type().PkgPath() == reflect.TypeFor[v1.Flow]().PkgPath():
		for i := range v.NumField() {
			eachZero(v.Field(i), path+"."+v.Type().Field(i).Name, each)
		}
	}
}
