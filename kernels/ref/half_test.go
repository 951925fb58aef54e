package ref

import (
	"math"
	"testing"
)

// TestHalfAll tests every binary16: widening is exact by definition of the format, and
// narrowing is its inverse.
func TestHalfAll(t *testing.T) {
	for i := range 1 << 16 {
		h := uint16(i)
		got := HalfToFloat(h)
		exp, man := int(h>>10&31), float64(h&1023)
		want := math.Ldexp(man, -24)
		switch {
		case exp == 31 && man != 0:
			if got == got {
				t.Fatalf("%#x is %v, want NaN", h, got)
			}
			if back := FloatToHalf(got); back&0x7c00 != 0x7c00 || back&1023 == 0 || back&0x8000 != h&0x8000 {
				t.Fatalf("NaN %#x came back as %#x", h, back)
			}
			continue
		case exp == 31:
			want = math.Inf(1)
		case exp > 0:
			want = math.Ldexp(1024+man, exp-25)
		}
		if h>>15 == 1 {
			want = -want
		}
		if float64(got) != want || math.Signbit(float64(got)) != (h>>15 == 1) {
			t.Fatalf("%#x is %v, want %v", h, got, want)
		}
		if back := FloatToHalf(got); back != h {
			t.Fatalf("%#x came back as %#x", h, back)
		}
	}
}

// TestHalfRounding tests the middle between every two neighbours, and the closest values on
// each side of it.
func TestHalfRounding(t *testing.T) {
	for h := uint16(0); h < 0x7bff; h++ {
		mid := (HalfToFloat(h) + HalfToFloat(h+1)) / 2 // exact in binary32
		even := h + h&1
		for _, c := range []struct {
			x    float32
			want uint16
		}{{mid, even}, {math.Nextafter32(mid, 0), h}, {math.Nextafter32(mid, 1e9), h + 1}} {
			if got := FloatToHalf(c.x); got != c.want {
				t.Fatalf("%v is %#x, want %#x", c.x, got, c.want)
			}
			if got := FloatToHalf(-c.x); got != c.want|0x8000 {
				t.Fatalf("%v is %#x, want %#x", -c.x, got, c.want|0x8000)
			}
		}
	}
	for x, want := range map[float32]uint16{65519.996: 0x7bff, 65520: 0x7c00, 1e30: 0x7c00, 1e-30: 0, float32(math.Inf(-1)): 0xfc00} {
		if got := FloatToHalf(x); got != want {
			t.Errorf("%v is %#x, want %#x", x, got, want)
		}
	}
}

func TestBFloat(t *testing.T) {
	for i := range 1 << 16 {
		b := uint16(i)
		f := BFloatToFloat(b)
		if f != f {
			if back := FloatToBFloat(f); BFloatToFloat(back) == BFloatToFloat(back) {
				t.Fatalf("NaN %#x came back as %#x", b, back)
			}
			continue
		}
		if back := FloatToBFloat(f); back != b {
			t.Fatalf("%#x came back as %#x", b, back)
		}
	}
	for bits, want := range map[uint32]uint16{
		0x3f808000: 0x3f80, 0x3f818000: 0x3f82, 0x3f808001: 0x3f81, 0x3f807fff: 0x3f80,
		0x7f7fffff: 0x7f80, 0x7f800001: 0x7fc0, 0xff800001: 0xffc0,
	} {
		if got := FloatToBFloat(math.Float32frombits(bits)); got != want {
			t.Errorf("%#x is %#x, want %#x", bits, got, want)
		}
	}
}
