package schema

import (
	"encoding/json"
	"testing"
)

func TestLoadProfiles(t *testing.T) {
	for _, name := range []string{"smollm2", "llama-3.2-1b"} {
		p, err := Load("../profiles/" + name + ".cue")
		if err != nil {
			t.Fatal(err)
		}
		if p.Name != name {
			t.Errorf("name %q", p.Name)
		}
		b, _ := json.MarshalIndent(p, "", " ")
		t.Log(string(b), p.Pos("memory.swapSpace"))
	}
}
func BenchmarkLoad(b *testing.B) {
	for b.Loop() {
		if _, err := Load("../profiles/smollm2.cue"); err != nil {
			b.Fatal(err)
		}
	}
}
