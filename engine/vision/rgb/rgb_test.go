package rgb

import (
	"slices"
	"testing"
)

// TestUpright turns a 3 × 2 image by every orientation; the wanted rows are Pillow's.
func TestUpright(t *testing.T) {
	want := map[Orientation][]string{
		0: {"abc", "def"}, 1: {"abc", "def"}, 2: {"cba", "fed"}, 3: {"fed", "cba"}, 4: {"def", "abc"},
		5: {"ad", "be", "cf"}, 6: {"da", "eb", "fc"}, 7: {"fc", "eb", "da"}, 8: {"cf", "be", "ad"}, 9: {"abc", "def"},
	}
	m := New(3, 2)
	for i, c := range []byte("abcdef") {
		copy(m.Pix[3*i:], []byte{c, c + 100, c + 50})
	}
	for o, rows := range want {
		u := m.Upright(o)
		var got []string
		for y := range u.Height {
			var s []byte
			for x := range u.Width {
				p := u.Row(y)[3*x:]
				if p[1] != p[0]+100 || p[2] != p[0]+50 {
					t.Errorf("orientation %d: the channels of a pixel are %v", o, p[:3])
				}
				s = append(s, p[0])
			}
			got = append(got, string(s))
		}
		if !slices.Equal(got, rows) {
			t.Errorf("orientation %d: got %q, want %q", o, got, rows)
		}
		if w, h := o.Size(3, 2); w != u.Width || h != u.Height {
			t.Errorf("orientation %d: Size says %d × %d, the image is %d × %d", o, w, h, u.Width, u.Height)
		}
	}
}
