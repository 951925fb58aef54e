package backend

import "reflect"

// Operands returns the values that an op names, read or written.
func Operands(op Op) []Value { return operands(nil, reflect.ValueOf(op)) }

func operands(out []Value, v reflect.Value) []Value {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			out = operands(out, v.Field(i))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			out = operands(out, v.Elem())
		}
	case reflect.Int32:
		if v.Type() == reflect.TypeFor[Value]() && v.Int() >= 0 {
			out = append(out, Value(v.Int()))
		}
	}
	return out
}
