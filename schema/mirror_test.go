package schema

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"cuelang.org/go/cue/cuecontext"
	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

// TestMirror checks that the Go structs and the definitions have the same fields.
func TestMirror(t *testing.T) {
	lang, err := readLanguage(cuecontext.New())
	if err != nil {
		t.Fatal(err)
	}
	mirrored(t, "#Profile", lang.root, reflect.TypeFor[Profile]())
}

func mirrored(t *testing.T, path string, f *field, typ reflect.Type) {
	t.Helper()
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	switch {
	case typ == reflect.TypeFor[Key](): // #Key is a disjunction; TestGolden has all its forms
	case typ == reflect.TypeFor[Latency](): // a text in the definition; TestLatency has its forms
	case len(f.fields) > 0:
		if typ.Kind() != reflect.Struct {
			t.Fatalf("%s is a %v", path, typ)
		}
		var tags []string
		for i := range typ.NumField() {
			name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			if !typ.Field(i).IsExported() {
				continue
			}
			tags = append(tags, name)
			if m := f.member(name); m == nil {
				t.Errorf("%s.%s is in the Go struct alone", path, name)
			} else {
				mirrored(t, path+"."+name, m, typ.Field(i).Type)
			}
		}
		for _, name := range f.names() {
			if !slices.Contains(tags, name) {
				t.Errorf("%s.%s is in the definition alone", path, name)
			}
		}
	case f.elem != nil:
		if k := typ.Kind(); k != reflect.Slice && k != reflect.Map {
			t.Fatalf("%s is a %v", path, typ)
		}
		mirrored(t, path+"[]", f.elem, typ.Elem())
	default:
		if k := typ.Kind(); k == reflect.Struct || k == reflect.Map || k == reflect.Slice {
			t.Errorf("%s is a %v", path, typ)
		}
	}
}

// TestBack checks that a resolved profile, written as JSON, parses to the same profile.
func TestBack(t *testing.T) {
	everything, err := txtar.ParseFile("testdata/good-everything.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{minimal, string(everything.Files[0].Data)} {
		p := parse(t, text)
		for i := range p.Serve.APIKeys {
			p.Serve.APIKeys[i].secret = "" // never written
		}
		p.Serve.APIKeys = slices.DeleteFunc(p.Serve.APIKeys, func(k Key) bool { return k.File == "" && k.Env == "" })
		b, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		back := parse(t, string(b))
		if d := cmp.Diff(p, back, cmp.AllowUnexported(Key{}), cmp.FilterPath(func(p cmp.Path) bool { return p.String() == "origin" }, cmp.Ignore())); d != "" {
			t.Error(d)
		}
		if p.Hash() != back.Hash() {
			t.Error("another hash")
		}
	}
}

// profiles returns the files of the profiles that come with vapp.
func profiles(t testing.TB) []string {
	t.Helper()
	list, err := filepath.Glob("../profiles/*.cue")
	if err != nil || len(list) < 2 {
		t.Fatal(list, err)
	}
	return list
}

func TestProfiles(t *testing.T) {
	for _, file := range profiles(t) {
		if _, err := Load(file); err != nil {
			t.Errorf("%s", err)
		}
	}
}

func BenchmarkLoad(b *testing.B) {
	for _, file := range profiles(b) {
		b.Run(filepath.Base(file), func(b *testing.B) {
			for b.Loop() {
				if _, err := Load(file); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// FuzzParse checks that any text is either a complete profile or an *Error with one line and
// a position per problem, without a panic.
func FuzzParse(f *testing.F) {
	list, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range list {
		archive, err := txtar.ParseFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(archive.Files[0].Data)
	}
	for _, file := range profiles(f) {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := Parse("profile.cue", text)
		if err == nil {
			if p.Name == "" || p.Model.Source == "" || (p.Memory.Utilization == 0) == (p.Memory.KVCache == 0) || len(p.Hash()) != 64 {
				t.Errorf("accepted %+v", p)
			}
			return
		}
		e, ok := err.(*Error)
		if !ok || len(e.List) == 0 || e.Kind() == "" {
			t.Fatalf("%T %v", err, err)
		}
		for _, q := range e.List {
			if q.Message == "" || q.Pos.File == "" || strings.ContainsAny(q.String(), "\n\r") {
				t.Errorf("%+v", q)
			}
		}
	})
}
