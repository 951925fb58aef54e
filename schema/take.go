package schema

import (
	"reflect"
	"slices"
	"strings"
)

// Take returns p with next's values in the fields of these classes. The presence of an
// optional struct has the class of the struct. Positions and relative paths are next's.
func (p *Profile) Take(next *Profile, classes ...Class) *Profile {
	out := *p
	take(fieldsOfProfile(), reflect.ValueOf(&out).Elem(), reflect.ValueOf(next).Elem(), classes)
	out.origin = next.origin
	return &out
}

// take copies the fields of these classes below f.
func take(f *field, to, from reflect.Value, classes []Class) {
	for i := range to.NumField() {
		name, _, _ := strings.Cut(to.Type().Field(i).Tag.Get("json"), ",")
		m := f.member(name)
		if m == nil || !to.Type().Field(i).IsExported() {
			continue
		}
		a, b := to.Field(i), from.Field(i)
		taken := slices.Contains(classes, m.class)
		switch {
		case a.Kind() == reflect.Struct && len(m.fields) > 0:
			take(m, a, b, classes)
		case !taken && a.Kind() == reflect.Pointer && len(m.fields) > 0 && !a.IsNil() && !b.IsNil():
			both := reflect.New(a.Type().Elem())
			both.Elem().Set(a.Elem())
			take(m, both.Elem(), b.Elem(), classes)
			a.Set(both)
		case taken:
			a.Set(b)
		}
	}
}
