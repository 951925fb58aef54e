package vision

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"vapp.dev/engine/vision/rgb"
)

// gemmaBudgets are the numbers of tokens that Gemma 4 has for an image.
var gemmaBudgets = []int{70, 140, 280, 560, 1120}

// gemma is the rule of Gemma 4: the largest size with the ratio of the image whose patches fit in a
// budget of tokens and whose sides are multiples of Pool patches.
type gemma struct {
	fields       *fields
	layout       Layout
	pool, tokens int
	colours      *[256]float32
}

func gemmaOptions() map[string]bool {
	return set("max_soft_tokens", "patch_size", "pooling_kernel_size", "do_resize", "do_rescale", "rescale_factor", "do_normalize", "image_mean", "image_std",
		"do_convert_rgb", "resample", "num_frames", "fps", "do_sample_frames")
}

func set(names ...string) map[string]bool {
	out := map[string]bool{}
	for _, n := range names {
		out[n] = true
	}
	return out
}

func newGemma(f *fields) (*gemma, error) { return readGemma(f, 280, defaults{deviation: 1}) }

func readGemma(f *fields, tokens int, d defaults) (*gemma, error) {
	g := &gemma{fields: f, layout: Layout{Patch: f.whole("patch_size", 1, 256, 16)}, pool: f.whole("pooling_kernel_size", 1, 64, 3)}
	g.tokens = f.whole("max_soft_tokens", 1, 1<<20, tokens)
	if !slices.Contains(gemmaBudgets, g.tokens) {
		f.fail("max_soft_tokens", "%d is not one of %v", g.tokens, gemmaBudgets)
	}
	g.colours = f.steps(false, 0, 1, d)
	return g, f.err
}

// Size is get_aspect_ratio_preserving_size of transformers.
func (g *gemma) Size(width, height, budget int) (Grid, error) {
	tokens := g.tokens
	if budget != 0 {
		if tokens = budget; !slices.Contains(gemmaBudgets, budget) {
			return Grid{}, &ConfigError{"image tokens", fmt.Sprintf("%d is not one of %v", budget, gemmaBudgets)}
		}
	}
	if err := checkSide(width, height); err != nil {
		return Grid{}, err
	}
	unit := g.pool * g.layout.Patch
	w, h := float64(width), float64(height)
	factor := math.Sqrt(float64(tokens*unit*unit) / float64(width*height))
	across, down := int(factor*w/float64(unit)), int(factor*h/float64(unit)) // in tokens
	switch {
	case across == 0 && down == 0:
		return Grid{}, &SizeError{width, height, "it has less than a token"}
	case down == 0:
		across, down = min(int(w/h), tokens), 1
	case across == 0:
		across, down = 1, min(int(h/w), tokens)
	}
	if across*down > tokens {
		return Grid{}, &SizeError{width, height, fmt.Sprintf("%d × %d tokens are more than %d", across, down, tokens)}
	}
	return Grid{Width: across * unit, Height: down * unit, Across: across * g.pool, Down: down * g.pool, Merge: g.pool}, nil
}

// maxSide is the maximum number of pixels of a side: products of sides and sizes of patches fit in
// 64 bits.
const maxSide = 1 << 24

func checkSide(width, height int) error {
	switch {
	case width < 1 || height < 1:
		return &SizeError{width, height, "it is empty"}
	case width > maxSide || height > maxSide:
		return &SizeError{width, height, fmt.Sprintf("a side has at most %d", maxSide)}
	}
	return nil
}

func (g *gemma) Patches(dst *Patches, img *rgb.Image, grid Grid) {
	g.layout.write(dst, []*rgb.Image{img}, grid, pillow, g.colours)
}

func (g *gemma) Most() int { return g.tokens }

func (g *gemma) Layout() Layout { return g.layout }

func (g *gemma) With(kwargs map[string]json.RawMessage) (Rule, error) {
	if len(kwargs) == 0 {
		return g, nil
	}
	f, _, err := g.fields.override(kwargs, "images_kwargs", gemmaOptions())
	if err != nil {
		return nil, err
	}
	out, err := newGemma(f)
	if err != nil {
		return nil, err
	}
	return out, out.same(g, f)
}

// same fails where patches would no longer be those of the model.
func (g *gemma) same(was *gemma, f *fields) error {
	if g.layout != was.layout {
		f.fail("patch_size", "%d; the model has %d", g.layout.Patch, was.layout.Patch)
	}
	if g.pool != was.pool {
		f.fail("pooling_kernel_size", "%d; the model has %d", g.pool, was.pool)
	}
	return f.err
}

// gemmaVideo is the rule of Gemma 4 for videos: each frame is an image of 70 tokens.
type gemmaVideo struct {
	gemma
	sampling
}

func newGemmaVideo(f *fields) (*gemmaVideo, error) {
	g, err := readGemma(f, 70, defaults{normalize: true, deviation: 1})
	if err != nil {
		return nil, err
	}
	v := &gemmaVideo{*g, sampling{all: !f.flag("do_sample_frames", true), frames: f.whole("num_frames", 1, maxFrames, 32)}}
	if f.has("fps") {
		v.fps = f.real("fps", 1e6, 1)
		if _, both := f.in["num_frames"]; both {
			f.fail("fps", "num_frames is set too; use one of them")
		}
	}
	return v, f.err
}

// Sample returns frames at equal distances; all, where there are fewer than the rule takes
// (transformers refuses these).
func (v *gemmaVideo) Sample(total int, fps float64) []int {
	n := v.frames
	switch {
	case v.all:
		n = total
	case v.fps > 0:
		n = max(1, int(float64(total)/known(fps)*v.fps))
	}
	n = min(n, total)
	out := make([]int, n)
	for i := range out {
		out[i] = i * total / n
	}
	return out
}

func (v *gemmaVideo) Size(n, width, height int) (Grid, error) { return v.gemma.Size(width, height, 0) }

func (v *gemmaVideo) Patches(dst *Patches, frames []*rgb.Image, g Grid) {
	v.layout.write(dst, frames[:1], g, torchvision, v.colours)
}

// Labels returns minute and second of each frame, and a space between a frame and the next.
func (v *gemmaVideo) Labels(frames []int, fps float64) []string {
	out := make([]string, len(frames))
	for i, f := range frames {
		s := int(float64(f) / known(fps))
		out[i] = fmt.Sprintf("%02d:%02d ", s/60, s%60)
		if i > 0 {
			out[i] = " " + out[i]
		}
	}
	return out
}

func (v *gemmaVideo) With(kwargs map[string]json.RawMessage) (VideoRule, error) {
	if len(kwargs) == 0 {
		return v, nil
	}
	f, over, err := v.fields.override(kwargs, "videos_kwargs", gemmaOptions())
	if err != nil {
		return nil, err
	}
	f.exclusive(over)
	out, err := newGemmaVideo(f)
	if err != nil {
		return nil, err
	}
	out.tokens = v.tokens // max_soft_tokens is of images: as in vLLM, frames keep their number
	return out, out.same(&v.gemma, f)
}
