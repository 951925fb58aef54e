package vision

import (
	"encoding/json"
	"fmt"
	"math"

	"vapp.dev/engine/vision/rgb"
)

// qwen is the rule of Qwen3-VL and Qwen3.5: the size next to the image's whose sides are multiples
// of merge patches, with a number of pixels from least to most.
type qwen struct {
	fields      *fields
	layout      Layout
	least, most int // pixels of an image, or of all frames of a video
	colours     *[256]float32
}

func qwenOptions() map[string]bool {
	return set("min_pixels", "max_pixels", "size", "patch_size", "temporal_patch_size", "merge_size", "do_resize", "do_rescale", "rescale_factor", "do_normalize",
		"image_mean", "image_std", "do_convert_rgb", "resample", "num_frames", "fps", "min_frames", "max_frames", "do_sample_frames", "cap_pixels_per_frame", "max_video_tokens")
}

// clip is the mean of red that CLIP normalizes by, the default of the class. No model with this
// encoder has it, so a config must name the mean.
const clip = 0.48145466

func newQwen(f *fields) (*qwen, error) {
	return readQwen(f, 14, 56*56, 28*28*1280, defaults{normalize: true, mean: clip, deviation: 0.26862954})
}

func readQwen(f *fields, patch, least, most int, d defaults) (*qwen, error) {
	q := &qwen{fields: f, least: least, most: most, layout: Layout{
		Patch: f.whole("patch_size", 1, 256, patch), Frames: f.whole("temporal_patch_size", 1, 64, 2), Square: f.whole("merge_size", 1, 64, 2),
	}}
	const pixels = 1 << 40
	if size := f.object("size"); size != nil {
		q.least, q.most = size.whole("shortest_edge", 1, pixels, 0), size.whole("longest_edge", 1, pixels, 0)
		if q.least == 0 || q.most == 0 {
			size.fail("", "it must have shortest_edge and longest_edge")
		}
		if size.err != nil {
			f.err = size.err
		}
	}
	q.least, q.most = f.whole("min_pixels", 1, pixels, q.least), f.whole("max_pixels", 1, pixels, q.most)
	q.colours = f.steps(true, 0.5, 0.5, d)
	return q, f.err
}

// unit is the number of pixels of a token's side.
func (q *qwen) unit() int { return q.layout.Patch * q.layout.Square }

// Size is smart_resize of transformers' image processor.
func (q *qwen) Size(width, height, budget int) (Grid, error) {
	if err := checkSide(width, height); err != nil {
		return Grid{}, err
	}
	most := q.most
	if budget != 0 {
		if budget < 0 {
			return Grid{}, &ConfigError{"image tokens", fmt.Sprintf("%d is negative", budget)}
		}
		most = min(most, min(budget, 1<<20)*q.unit()*q.unit())
	}
	if err := ratio(width, height); err != nil {
		return Grid{}, err
	}
	return q.fit(1, 1, width, height, most), nil
}

// ratio refuses images with sides of more than 200 to 1.
func ratio(width, height int) error {
	if r := float64(max(width, height)) / float64(min(width, height)); r > 200 {
		return &SizeError{width, height, fmt.Sprintf("the ratio of its sides is %.4g, at most 200 are supported", r)}
	}
	return nil
}

// fit returns the grid of n frames of width × height with at most most pixels; whole is n rounded
// to whole items.
func (q *qwen) fit(n, whole, width, height, most int) Grid {
	unit := q.unit()
	u, w, h := float64(unit), float64(width), float64(height)
	across, down := int(math.RoundToEven(w/u)), int(math.RoundToEven(h/u))
	switch pixels := whole * across * down * unit * unit; {
	case pixels > most:
		beta := math.Sqrt(float64(n*height*width) / float64(most)) // the product fits: see maxFrames
		across, down = max(1, int(w/beta/u)), max(1, int(h/beta/u))
	case pixels < q.least:
		beta := math.Sqrt(float64(q.least) / float64(n*height*width))
		across, down = int(math.Ceil(w*beta/u)), int(math.Ceil(h*beta/u))
	}
	m := q.layout.Square
	return Grid{Width: across * unit, Height: down * unit, Across: across * m, Down: down * m, Merge: m}
}

func (q *qwen) Patches(dst *Patches, img *rgb.Image, g Grid) {
	q.layout.write(dst, []*rgb.Image{img}, g, pillow, q.colours)
}

// Most is more than the pixels of the rule for extreme ratios: a side has at least one token.
func (q *qwen) Most() int {
	u := float64(q.unit())
	most, least := float64(q.most), float64(q.least)
	tokens := max(most, u*math.Sqrt(200*most)) / (u * u)
	enlarged := (math.Sqrt(200*least)/u + 1) * (math.Sqrt(least/200)/u + 1)
	enlarged = max(enlarged, (math.Sqrt(least)/u+1)*(math.Sqrt(least)/u+1))
	return int(max(tokens, enlarged, 1))
}

func (q *qwen) Layout() Layout { return q.layout }

func (q *qwen) With(kwargs map[string]json.RawMessage) (Rule, error) {
	if len(kwargs) == 0 {
		return q, nil
	}
	f, _, err := q.override(kwargs, "images_kwargs")
	if err != nil {
		return nil, err
	}
	out, err := newQwen(f)
	if err != nil {
		return nil, err
	}
	return out, out.same(q, f)
}

// override returns the fields with the options of a request, and these options. size comes before
// min_pixels and max_pixels of the config.
func (q *qwen) override(kwargs map[string]json.RawMessage, group string) (f *fields, over map[string]json.RawMessage, err error) {
	f, over, err = q.fields.override(kwargs, group, qwenOptions())
	if err != nil {
		return nil, nil, err
	}
	if _, ok := over["size"]; ok {
		for _, key := range []string{"min_pixels", "max_pixels"} {
			if _, ok := over[key]; !ok {
				delete(f.in, key)
			}
		}
	}
	return f, over, nil
}

// same fails where patches would no longer be those of the model.
func (q *qwen) same(was *qwen, f *fields) error {
	a, b := q.layout, was.layout
	for _, c := range []struct {
		key      string
		got, has int
	}{{"patch_size", a.Patch, b.Patch}, {"temporal_patch_size", a.Frames, b.Frames}, {"merge_size", a.Square, b.Square}} {
		if c.got != c.has {
			f.fail(c.key, "%d; the model has %d", c.got, c.has)
		}
	}
	return f.err
}
