package metrics

import (
	"fmt"
	"reflect"
)

// Add adds every number of from to the same field of into, also in the structs and arrays inside: the counters of one more
// worker. It panics at a field that cannot be added, such as a text. Counters that are added field by field by hand forget the
// next one.
func Add[T any](into, from *T) {
	combine(reflect.ValueOf(into).Elem(), reflect.ValueOf(from).Elem(), 1)
}

// Since returns what was counted since before: now less before, field by field as in [Add]. Histograms cannot be subtracted.
func Since[T any](now, before *T) T {
	difference := *now
	combine(reflect.ValueOf(&difference).Elem(), reflect.ValueOf(before).Elem(), -1)
	return difference
}

// combine adds sign times from to into, both of one type.
func combine(into, from reflect.Value, sign int) {
	switch {
	case into.Type() == histogramType && sign > 0:
		into.Addr().Interface().(*Histogram).Add(from.Addr().Interface().(*Histogram))
	case into.CanUint():
		into.SetUint(into.Uint() + uint64(sign)*from.Uint()) // two's complement: -1 times n is subtracted
	case into.CanInt():
		into.SetInt(into.Int() + int64(sign)*from.Int())
	case into.CanFloat():
		into.SetFloat(into.Float() + float64(sign)*from.Float())
	case into.Kind() == reflect.Struct && into.Type() != histogramType:
		for i := range into.NumField() {
			combine(into.Field(i), from.Field(i), sign)
		}
	case into.Kind() == reflect.Array:
		for i := range into.Len() {
			combine(into.Index(i), from.Index(i), sign)
		}
	default:
		panic(fmt.Sprintf("metrics: %s cannot be added", into.Type()))
	}
}
