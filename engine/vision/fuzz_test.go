package vision

import (
	"encoding/json"
	"errors"
	"testing"

	"vapp.dev/engine/vision/rgb"
	"vapp.dev/kernels/cpu/isa"
	"vapp.dev/kernels/cpu/pixels"
)

// FuzzConfig reads configs and options of requests, and asks for sizes: a rule is refused with a
// *ConfigError, a size with a *SizeError, and a grid has the tokens that the rule promises.
func FuzzConfig(f *testing.F) {
	f.Add([]byte(gemmaConfig), []byte(nil), []byte(`{"max_soft_tokens": 70}`), 640, 480)
	f.Add([]byte(nil), []byte(qwenConfig), []byte(`{"min_pixels": 5, "videos_kwargs": {"fps": 1}}`), 1, 200)
	f.Add([]byte(`{"video_processor": {"num_frames": 3}}`), []byte(qwenVideoConfig), []byte(`{"size": {"shortest_edge": 9, "longest_edge": 1e9}}`), 1<<24, 1<<24)
	f.Fuzz(func(t *testing.T, processor, image, kwargs []byte, width, height int) {
		p, err := Read(Files{Processor: processor, Image: image})
		var config *ConfigError
		if err != nil {
			if !errors.As(err, &config) {
				t.Fatalf("Read: %T %v", err, err)
			}
			return
		}
		var options map[string]json.RawMessage
		if json.Unmarshal(kwargs, &options) != nil {
			options = nil
		}
		check := func(g Grid, err error) {
			t.Helper()
			var size *SizeError
			switch {
			case err != nil:
				if !errors.As(err, &size) {
					t.Fatalf("Size: %T %v", err, err)
				}
			case g.Width < 1 || g.Height < 1 || g.Tokens() < 1 || g.Across%g.Merge != 0 || g.Down%g.Merge != 0:
				t.Fatalf("%d × %d: %+v", width, height, g)
			}
		}
		rule, err := p.Image.With(options)
		if err == nil {
			g, err := rule.Size(width, height, 0)
			check(g, err)
			if err == nil && g.Tokens() > rule.Most() {
				t.Fatalf("%d × %d: %d tokens, at most %d", width, height, g.Tokens(), rule.Most())
			}
		} else if !errors.As(err, &config) {
			t.Fatalf("With: %T %v", err, err)
		}
		if p.Video == nil {
			return
		}
		video, err := p.Video.With(options)
		if err != nil {
			if !errors.As(err, &config) {
				t.Fatalf("With: %T %v", err, err)
			}
			return
		}
		n := min(max(width, 0), 5000)
		frames := video.Sample(n, float64(height))
		for i, at := range frames {
			if at < 0 || at >= n || i > 0 && at < frames[i-1] {
				t.Fatalf("frames %v of %d", frames, n)
			}
		}
		check(video.Size(len(frames), width, height))
		video.Labels(frames, float64(height))
	})
}

// everyPasses returns the passes in Go and those in C for each instruction set of this processor.
func everyPasses() map[string]func() passes {
	out := map[string]func() passes{"go": func() passes { return &portable{} }}
	for _, v := range isa.Variants() {
		if k, ok := pixels.Best([]string{v}); ok {
			out[v] = func() passes { return &native{Kernel: k} }
		}
	}
	return out
}

// FuzzResize resizes small images with all passes: each byte of the result is that of a plain
// computation.
func FuzzResize(f *testing.F) {
	f.Add(uint16(3), uint16(7), uint16(5), uint16(2), uint32(1))
	f.Add(uint16(90), uint16(9), uint16(91), uint16(1), uint32(2))
	f.Add(uint16(299), uint16(250), uint16(280), uint16(240), uint32(3))
	f.Add(uint16(270), uint16(299), uint16(5), uint16(33), uint32(4))
	f.Add(uint16(33), uint16(290), uint16(290), uint16(17), uint32(5))
	f.Fuzz(func(t *testing.T, w, h, across, down uint16, seed uint32) {
		in, out := [2]int{int(w%300) + 1, int(h%300) + 1}, [2]int{int(across%300) + 1, int(down%300) + 1}
		src, dst := picture(in[0], in[1], seed), rgb.New(out[0], out[1])
		want := src
		if downFirst(src, out[0], out[1]) {
			want = plain(plain(src, in[0], out[1]), out[0], out[1])
		} else {
			want = plain(plain(src, out[0], in[1]), out[0], out[1])
		}
		for name, with := range everyPasses() {
			clear(dst.Pix)
			r := newResampler(src, out[0], out[1], pillow, func(y int, row []byte) { copy(dst.Row(y), row) })
			r.passes = with
			half := out[1] / 2
			if half > 0 {
				r.strip(0, half)
			}
			r.strip(half, out[1])
			for i := range want.Pix {
				if dst.Pix[i] != want.Pix[i] {
					t.Fatalf("%s: %v to %v: byte %d is %d, want %d", name, in, out, i, dst.Pix[i], want.Pix[i])
				}
			}
		}
	})
}

// plain resizes one axis, number by number.
func plain(src *rgb.Image, width, height int) *rgb.Image {
	if width == src.Width && height == src.Height {
		return src
	}
	dst := rgb.New(width, height)
	along := width != src.Width
	f := newFilter(src.Height, height, pillow)
	if along {
		f = newFilter(src.Width, width, pillow)
	}
	for y := range height {
		for x := range width {
			i, step, at := y, 3*src.Width, 3*x
			if along {
				i, step, at = x, 3, 3*src.Width*y
			}
			from, _ := f.lines(i)
			for c := range 3 {
				sum := int64(1) << (f.Bits - 1)
				for k, w := range f.Of(i) {
					sum += int64(src.Pix[at+(from+k)*step+c]) * int64(w)
				}
				dst.Pix[3*(width*y+x)+c] = byte(min(max(sum>>f.Bits, 0), 255))
			}
		}
	}
	return dst
}
