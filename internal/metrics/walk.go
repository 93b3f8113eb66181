package metrics

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Kind is the type of a metric.
type Kind string

// The types of Prometheus that are used here.
const (
	Counter       Kind = "counter"
	Gauge         Kind = "gauge"
	HistogramKind Kind = "histogram"
)

// Label is a name and a value.
type Label struct{ Name, Value string }

// Sample is one number, or one histogram, at the time of the call.
type Sample struct {
	Name   string
	Help   string
	Kind   Kind
	Labels []Label
	Value  float64 // of a histogram: the sum, in seconds

	Count   uint64             // of a histogram
	Buckets map[float64]uint64 // of a histogram: cumulative counts by upper bound in seconds
}

// Of returns the samples of structs, or of pointers to structs, with the tags that the package describes. It panics if a tag
// is wrong: Describe finds that in a test.
func Of(values ...any) []Sample {
	w := &walk{plans: map[reflect.Type]*plan{}}
	for _, value := range values {
		w.value(reflect.ValueOf(value), place{})
	}
	return w.samples
}

// place is what the fields above a value say about it.
type place struct {
	prefix string  // what names that begin with _ follow
	help   string  // what follows the help texts below
	labels []Label // of everything below
	keys   []string
}

func (p place) with(labels ...Label) place {
	p.labels = append(slices.Clip(p.labels), labels...)
	return p
}

// walk collects samples, or descriptions of them if types only are walked.
type walk struct {
	types   bool
	samples []Sample
	plans   map[reflect.Type]*plan // parsed tags
}

// plan is what the tags of a struct type say.
type plan struct {
	labels []labelField
	fields []taggedField
}

type labelField struct {
	index []int
	name  string
}

type taggedField struct {
	index []int
	structTag
}

// structTag is the parsed tag of a field.
type structTag struct {
	metric, help, label, when, unit string
	constants                       []Label
	keys                            []string
	buckets                         bucketRange
}

// planOf parses the tags of a struct type once.
func (w *walk) planOf(t reflect.Type) *plan {
	if p := w.plans[t]; p != nil {
		return p
	}
	p := &plan{}
	var walked [][]int // embedded structs with a tag of their own
	for _, f := range reflect.VisibleFields(t) {
		if slices.ContainsFunc(walked, func(outer []int) bool { return slices.Equal(outer, f.Index[:min(len(outer), len(f.Index))]) }) {
			continue
		}
		_, tagged := f.Tag.Lookup("metric")
		if label := f.Tag.Get("label"); label != "" && !tagged {
			p.labels = append(p.labels, labelField{f.Index, label})
		}
		if tagged {
			p.fields = append(p.fields, taggedField{f.Index, tagOf(&f)})
		}
		if tagged && f.Anonymous {
			walked = append(walked, f.Index)
		}
	}
	w.plans[t] = p
	return p
}

func tagOf(f *reflect.StructField) structTag {
	var t structTag
	parts := strings.Split(f.Tag.Get("metric"), ",")
	t.metric = parts[0]
	for _, part := range parts[1:] {
		name, value, ok := strings.Cut(part, "=")
		if !ok {
			panic(fmt.Sprintf("metrics: field %s: %q is no label=value", f.Name, part))
		}
		t.constants = append(t.constants, Label{name, value})
	}
	t.help, t.label, t.when, t.unit = f.Tag.Get("help"), f.Tag.Get("label"), f.Tag.Get("when"), f.Tag.Get("unit")
	if keys := f.Tag.Get("key"); keys != "" {
		t.keys = strings.Split(keys, ",")
	}
	var err error
	if t.buckets, err = parseBuckets(f.Tag.Get("buckets")); err != nil {
		panic(fmt.Sprintf("metrics: field %s: %v", f.Name, err))
	}
	return t
}

var histogramType = reflect.TypeFor[Histogram]()

// value walks a value that has no tag of its own.
func (w *walk) value(v reflect.Value, at place) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			w.value(v.Elem(), at)
		} else if w.types && v.Kind() == reflect.Pointer {
			w.value(reflect.Zero(v.Type().Elem()), at)
		}
	case reflect.Struct:
		w.fields(v, at)
	default:
		panic(fmt.Sprintf("metrics: %s is no struct", v.Type()))
	}
}

func (w *walk) fields(v reflect.Value, at place) {
	p := w.planOf(v.Type())
	at = at.with(w.labelsOf(v)...)
	for i := range p.fields {
		w.field(v.FieldByIndex(p.fields[i].index), &p.fields[i].structTag, at)
	}
}

// labelsOf are the fields of a struct that are labels and no metric.
func (w *walk) labelsOf(v reflect.Value) (labels []Label) {
	for _, f := range w.planOf(v.Type()).labels {
		labels = append(labels, Label{f.name, textOf(v.FieldByIndex(f.index))})
	}
	return labels
}

// field walks a field with a tag: a struct, or several, or one sample, or several.
func (w *walk) field(v reflect.Value, tag *structTag, at place) {
	at = at.with(tag.constants...)
	at.keys = tag.keys
	name := tag.metric
	if strings.HasPrefix(name, "_") {
		name = at.prefix + strings.TrimSuffix(name, "_") // _ alone is the prefix itself
	}
	w.element(v, name, tag, at)
}

func (w *walk) element(v reflect.Value, name string, tag *structTag, at place) {
	if v.Type() == histogramType {
		w.histogram(v, name, tag, at)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			w.element(v.Elem(), name, tag, at)
		} else if w.types {
			w.element(reflect.Zero(v.Type().Elem()), name, tag, at)
		}
	case reflect.Struct:
		w.fields(v, at.below(name, tag))
	case reflect.Map:
		w.entries(v, name, tag, at)
	case reflect.Slice:
		if w.types {
			w.element(reflect.Zero(v.Type().Elem()), name, tag, at)
		}
		for i := range v.Len() {
			w.element(v.Index(i), name, tag, at)
		}
	case reflect.Array:
		w.array(v, name, tag, at)
	default:
		w.sample(v, name, tag, at)
	}
}

// below is the place of what a field holds.
func (p place) below(name string, tag *structTag) place {
	if name != "" {
		p.prefix = name
	}
	p.help = strings.TrimSpace(tag.help + " " + p.help)
	return p
}

// nextKey takes the label's name of the outermost map or array.
func (p place) nextKey(name string) (string, place) {
	if len(p.keys) == 0 {
		panic(fmt.Sprintf("metrics: %s: a map or array needs key", name))
	}
	key := p.keys[0]
	p.keys = p.keys[1:]
	return key, p
}

func (w *walk) entries(v reflect.Value, name string, tag *structTag, at place) {
	structKey := v.Type().Key().Kind() == reflect.Struct
	var key string
	if !structKey {
		key, at = at.nextKey(name)
	}
	labels := func(k reflect.Value) []Label {
		if structKey {
			return w.labelsOf(k)
		}
		return []Label{{key, textOf(k)}}
	}
	if w.types {
		w.element(reflect.Zero(v.Type().Elem()), name, tag, at.with(labels(reflect.Zero(v.Type().Key()))...))
		return
	}
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	for _, k := range keys {
		w.element(v.MapIndex(k), name, tag, at.with(labels(k)...))
	}
}

// keyed is an array whose elements have names.
type keyed interface{ Key(index int) string }

func (w *walk) array(v reflect.Value, name string, tag *structTag, at place) {
	named, ok := v.Interface().(keyed)
	if !ok {
		panic(fmt.Sprintf("metrics: %s: %s needs a method Key(int) string", name, v.Type()))
	}
	key, at := at.nextKey(name)
	for i := range v.Len() {
		if w.types && i == 0 || !v.Index(i).IsZero() {
			w.element(v.Index(i), name, tag, at.with(Label{key, named.Key(i)}))
		}
	}
}

func (w *walk) histogram(v reflect.Value, name string, tag *structTag, at place) {
	h := v.Interface().(Histogram)
	w.samples = append(w.samples, Sample{
		Name: name, Help: helpOf(tag, at), Kind: HistogramKind, Labels: at.labels,
		Value: seconds(h.sum), Count: h.Count(), Buckets: h.buckets(tag.buckets),
	})
}

func (w *walk) sample(v reflect.Value, name string, tag *structTag, at place) {
	s := Sample{Name: name, Help: helpOf(tag, at), Kind: Gauge, Labels: at.labels}
	if strings.HasSuffix(name, "_total") {
		s.Kind = Counter
	}
	if tag.label != "" {
		s.Labels = at.with(Label{tag.label, textOf(v)}).labels
		s.Value = 1
	} else {
		s.Value = numberOf(v, name, tag)
	}
	w.samples = append(w.samples, s)
}

func helpOf(tag *structTag, at place) string { return strings.TrimSpace(tag.help + " " + at.help) }

func numberOf(v reflect.Value, name string, tag *structTag) float64 {
	one := func(yes bool) float64 {
		if yes {
			return 1
		}
		return 0
	}
	if tag.when != "" {
		return one(textOf(v) == tag.when)
	}
	switch {
	case v.Type() == reflect.TypeFor[time.Duration]():
		return seconds(time.Duration(v.Int()))
	case v.CanUint():
		return float64(v.Uint())
	case v.CanInt():
		return float64(v.Int())
	case v.CanFloat() && tag.unit == "ms":
		return v.Float() / 1000
	case v.CanFloat():
		return v.Float()
	case v.Kind() == reflect.Bool:
		return one(v.Bool())
	case v.Kind() == reflect.String:
		return one(v.Len() > 0)
	}
	panic(fmt.Sprintf("metrics: %s: %s is no number", name, v.Type()))
}

// textOf is the value of a label. A nil pointer is the empty text.
func textOf(v reflect.Value) string {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return ""
		}
		v = v.Elem()
	}
	switch {
	case v.Kind() == reflect.String:
		return v.String()
	case v.CanInterface():
		return fmt.Sprint(v.Interface())
	case v.CanUint():
		return strconv.FormatUint(v.Uint(), 10)
	}
	return v.String()
}
