package engine

import (
	"slices"
	"testing"
)

// TestThoughtState follows replies token by token: i is inside a thought, . is unconstrained, and a
// number is the forced next token.
func TestThoughtState(t *testing.T) {
	texts := map[int32]string{1: "<t>", 2: "</t>", 3: "a", 4: "</", 5: "t>b", 6: "[call]", 7: " ", 8: "<", 9: "t>"}
	byID := Thinking{Open: Marker{"<t>", 1}, Ends: []Marker{{"</t>", 2}, {"[call]", 6}}, Close: []int32{2}}
	again := byID
	again.Again = true
	byText := Thinking{Open: Marker{"<t>", -1}, Ends: []Marker{{"</t>", -1}}, Close: []int32{4, 9}}
	for _, x := range []struct {
		name   string
		of     Thinking
		inside bool
		budget int
		tokens []int32
		want   string // the state before each token and after the last
	}{
		{"spent", byID, true, 2, []int32{3, 3, 2, 3}, "ii2.."},
		{"at once", byID, true, 0, []int32{2, 3}, "2.."},
		{"ends by itself", byID, true, 3, []int32{3, 2, 3, 3}, "ii..."},
		{"ends with its last token", byID, true, 2, []int32{3, 2, 3}, "ii.."},
		{"a call ends it", byID, true, 2, []int32{3, 6, 3, 3}, "ii..."},
		{"opens in the reply", byID, false, 1, []int32{1, 3, 2, 3}, ".i2.."},
		{"opens and nothing is left", byID, false, 0, []int32{1, 2, 3}, ".2.."},
		{"opens once", byID, false, 2, []int32{1, 3, 2, 1, 3, 3}, ".ii...."},
		{"opens twice, one budget", again, false, 2, []int32{1, 3, 2, 1, 3, 2}, ".ii.i2."},
		{"the open marker is free", byID, true, 1, []int32{1, 3, 2}, "ii2."},
		{"never thinks", byID, false, 0, []int32{3, 3, 3}, "...."},
		{"a text ends it", byText, true, 3, []int32{3, 4, 5, 3}, "iii.."},
		{"a text that is forced", byText, true, 2, []int32{3, 3, 4, 9, 3}, "ii49.."},
		{"a text opens it", byText, false, 1, []int32{7, 8, 9, 3, 4, 9, 3}, "...i49.."},
		{"a text opens nothing later", byText, false, 1, []int32{3, 8, 9, 3}, "....."},
	} {
		of := x.of
		of.Inside, of.Budget, of.Bytes = x.inside, x.budget, func(id int32) []byte { return []byte(texts[id]) }
		s := of.begin(nil)
		got, free := show(s), []bool{}
		for _, id := range x.tokens {
			if forced, ended, err := s.Take(id); forced != nil || ended || err != nil {
				t.Fatal(x.name, forced, ended, err)
			}
			got += show(s)
			free = append(free, s.Free(1))
		}
		for i, f := range free[:len(free)-1] { // whatever came next, the following state forces nothing
			if state := x.want[i+2]; f && state != '.' && state != 'i' {
				t.Errorf("%s: free after %d tokens, then %c", x.name, i+1, state)
			}
		}
		if got != x.want {
			t.Errorf("%s: got %s, want %s", x.name, got, x.want)
		}
	}
}

func show(s *thought) string {
	words := []uint32{^uint32(0)}
	switch {
	case s.Mask(words):
		for id := range int32(32) {
			if slices.Equal(words, []uint32{1 << id}) {
				return string(rune('0' + id))
			}
		}
		return "?"
	case s.inside:
		return "i"
	}
	return "."
}
