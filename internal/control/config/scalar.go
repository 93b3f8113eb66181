package config

import (
	"encoding"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/weir-lb/weir/internal/addresstext"
)

// isScalarType reports whether the type is read from one scalar.
func isScalarType(v reflect.Value) bool {
	if v.CanAddr() {
		if _, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
			return true
		}
	}
	switch v.Kind() {
	case reflect.Struct, reflect.Map, reflect.Slice, reflect.Pointer, reflect.Array, reflect.Interface, reflect.Func, reflect.Chan:
		return false
	default:
		return true
	}
}

func (d *decoder) scalar(node ast.Node, to reflect.Value, path string) error {
	text, quoted, ok := scalarText(node)
	if !ok {
		return d.fail(node, path, "not a single value; write %s", describe(to.Type()))
	}
	if len(text) > maxValue && !d.long {
		return d.fail(node, path, "a value of %d bytes; write at most %d", len(text), maxValue)
	}
	if done, err := d.typed(node, to, path, text); done {
		return err
	}
	if quoted && to.Kind() != reflect.String {
		return d.fail(node, path, "%q is text; write %s without quotes", text, describe(to.Type()))
	}
	return d.basic(node, to, path, text)
}

// typed reads a value of a type with a syntax of its own. The result is whether the type is one.
func (d *decoder) typed(node ast.Node, to reflect.Value, path, text string) (bool, error) {
	switch target := to.Addr().Interface().(type) {
	case *time.Duration:
		value, err := time.ParseDuration(text)
		if err != nil {
			return true, d.fail(node, path, "%q is not a time; write a number with its unit, such as 500ms, 30s or 2h", text)
		}
		*target = value
		return true, nil
	case *netip.Addr:
		value, err := netip.ParseAddr(text)
		if err != nil {
			return true, d.fail(node, path, "%v", addresstext.Error("an address", text, "write an IPv4 or IPv6 address, such as 192.0.2.1 or 2001:db8::1"))
		}
		*target = value
		return true, nil
	case *netip.AddrPort:
		value, err := netip.ParseAddrPort(text)
		if err != nil {
			return true, d.fail(node, path, "%q is not an address with port; write 192.0.2.1:5684 or [2001:db8::1]:5684", text)
		}
		*target = value
		return true, nil
	case encoding.TextUnmarshaler:
		if err := target.UnmarshalText([]byte(text)); err != nil {
			return true, d.fail(node, path, "%v", err)
		}
		return true, nil
	}
	return false, nil
}

// basic reads a string, a truth value or a number.
func (d *decoder) basic(node ast.Node, to reflect.Value, path, text string) error {
	switch to.Kind() {
	case reflect.String:
		if _, isBool := node.(*ast.BoolNode); isBool {
			return d.fail(node, path, "%s reads as a truth value; put it in quotes", text)
		}
		to.SetString(text)
	case reflect.Bool:
		if _, isBool := node.(*ast.BoolNode); !isBool || text != "true" && text != "false" {
			return d.fail(node, path, "%q is no truth value; write true or false", text)
		}
		to.SetBool(text == "true")
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		value, err := strconv.ParseInt(text, base(text), to.Type().Bits())
		if err != nil {
			return d.fail(node, path, "%q is no whole number in range; write %s", text, describe(to.Type()))
		}
		to.SetInt(value)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		value, err := strconv.ParseUint(text, base(text), to.Type().Bits())
		if err != nil {
			return d.fail(node, path, "%q is no whole number in range; write %s", text, describe(to.Type()))
		}
		to.SetUint(value)
	case reflect.Float32, reflect.Float64:
		value, err := strconv.ParseFloat(text, to.Type().Bits())
		if err != nil || value-value != 0 {
			return d.fail(node, path, "%q is no number; write one such as 0.5", text)
		}
		to.SetFloat(value)
	default:
		panic("config: type " + to.Type().String() + " of " + path + " cannot be decoded")
	}
	return nil
}

// base returns 0 (base by prefix) for 0x…, else 10, so that a leading zero does not make a number octal.
func base(text string) int {
	if strings.HasPrefix(text, "0x") {
		return 0
	}
	return 10
}
