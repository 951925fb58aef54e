package schema
import ("testing";"fmt";cueerrors "cuelang.org/go/cue/errors";"cuelang.org/go/cue/cuecontext";"cuelang.org/go/cue")
func TestRaw(t *testing.T){
 H:="package p\nimport \"vapp.dev/schema\"\nschema.#Profile & {\nname: \"x\"\nmodel: source: \"y\"\n"
 for _,s:=range []string{
 H+"serve: port: -1\nbackned: \"cpu\"\n}", H+"serve: port: -1\nserve: foo: \"cpu\"\nbackned: 3\n}",
 H+"require: concurrency: {\">=8\": \"2G\", \">8\": 3}\n}","import \"vapp.dev/schem\"\nimport \"a.b/c\"\nschem.x&c.x"}{
  fmt.Println("=====", s[len(s)-min(len(s),60):])
  _,inst,err:=instance("x.cue",[]byte(s))
  if err!=nil {fmt.Println("LOAD",err); continue}
  ctx:=cuecontext.New(); v0:=ctx.BuildInstance(inst); l,_:=languageOf(ctx,inst); v:=v0.Unify(l.profile)
  for _,v:=range []cue.Value{v0,v}{
  err=v.Validate(cue.Concrete(true),cue.Final())
  for _,e:=range cueerrors.Errors(err) { f,a:=e.Msg(); fmt.Printf("  %q | %q %q pos=%v in=%v\n", e.Path(), f, a, e.Position(), e.InputPositions()) }
  fmt.Println("--")
  err=v.Validate(cue.Concrete(true),cue.All())
  for _,e:=range cueerrors.Errors(err) { f,a:=e.Msg(); fmt.Printf("  %q | %q %q pos=%v in=%v\n", e.Path(), f, a, e.Position(), e.InputPositions()) }
  fmt.Println("--")
  it,err:=v.Fields(); fmt.Println(it,err)
  }
 }
}
