package tcpscale

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"
)

// The sum of one report is that report: a figure that is added without having been set to zero would be counted twice.
func TestMergeOfOneReport(t *testing.T) {
	var r Report
	set(reflect.ValueOf(&r).Elem())
	r.At, r.BeganAt, r.FullAt = time.Now(), time.Now(), time.Now()
	r.Marks, r.Void = nil, ""
	want, got := figures(t, r), figures(t, MergeReports([]Report{r}))
	if len(want) < 30 {
		t.Errorf("only %d figures", len(want))
	}
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s is %v, of one report with %v", name, got[name], value)
		}
	}
}

// set gives each number below v a value.
func set(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				set(v.Field(i))
			}
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(3)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(3)
	case reflect.Float64:
		v.SetFloat(3)
	}
}

// figures are the numbers in the JSON of a report, by their path.
func figures(t *testing.T, r Report) map[string]float64 {
	t.Helper()
	text, err := json.Marshal(r)
	var tree map[string]any
	if err == nil {
		err = json.Unmarshal(text, &tree)
	}
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	var walk func(path string, value any)
	walk = func(path string, value any) {
		switch value := value.(type) {
		case float64:
			all[path] = value
		case map[string]any:
			for name, below := range value {
				walk(path+"."+name, below)
			}
		}
	}
	walk("", tree)
	return all
}
