package vision

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"vapp.dev/engine/vision/rgb"
)

// The configs of the golden's processors, as models publish them.
const (
	gemmaConfig = `{"image_processor": {"image_processor_type": "Gemma4ImageProcessor", "do_normalize": false, "max_soft_tokens": 280, "patch_size": 16,
		"pooling_kernel_size": 3, "resample": 3, "rescale_factor": 0.00392156862745098, "image_mean": [0, 0, 0], "image_std": [1, 1, 1]},
		"video_processor": {"video_processor_type": "Gemma4VideoProcessor", "max_soft_tokens": 70, "num_frames": 32}}`
	qwenConfig = `{"image_processor_type": "Qwen2VLImageProcessorFast", "size": {"shortest_edge": 65536, "longest_edge": 16777216}, "patch_size": 16,
		"temporal_patch_size": 2, "merge_size": 2, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "processor_class": "Qwen3VLProcessor"}`
	qwenVideoConfig = `{"video_processor_type": "Qwen3VLVideoProcessor", "size": {"shortest_edge": 4096, "longest_edge": 25165824}, "patch_size": 16,
		"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}`
)

// processors returns those of both models.
func processors(t testing.TB) map[string]*Processor {
	t.Helper()
	out := map[string]*Processor{}
	for name, files := range map[string]Files{
		"gemma": {Processor: []byte(gemmaConfig)}, "qwen": {Image: []byte(qwenConfig), Video: []byte(qwenVideoConfig)},
	} {
		p, err := Read(files)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = p
	}
	return out
}

// golden is testdata/images.json.gz, which testdata/record.py wrote.
type golden struct {
	Images []struct {
		Model          string
		Width, Height  int
		Seed           uint32
		Kwargs         map[string]json.RawMessage
		Tokens         int
		Across, Down   int
		Pixels, Places string
	}
	Videos []struct {
		Model                 string
		Frames, Width, Height int
		Bytes, Pixels         string
	}
	Sampled []struct {
		Model   string
		Total   int
		FPS     float64
		Indices json.RawMessage
		Labels  string
	}
	Resizes                           [][]any
	SizesGemma, SizesQwen, SizesVideo [][]int
}

func readImages(t *testing.T) (g golden) {
	t.Helper()
	var raw map[string]json.RawMessage
	readGolden(t, "images.json.gz", &raw)
	for name, into := range map[string]any{
		"images": &g.Images, "videos": &g.Videos, "sampled": &g.Sampled, "resizes": &g.Resizes,
		"sizes_gemma": &g.SizesGemma, "sizes_qwen": &g.SizesQwen, "sizes_video": &g.SizesVideo,
	} {
		if err := json.Unmarshal(raw[name], into); err != nil {
			t.Fatal(name, err)
		}
	}
	return g
}

// digest returns the SHA-256 of numbers in little endian.
func digest(t *testing.T, v any) string {
	t.Helper()
	h := sha256.New()
	if err := binary.Write(h, binary.LittleEndian, v); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// TestImages compares 40 images with the PIL processors of transformers, bit by bit: sizes, numbers
// of tokens, positions, and pixel_values, which for Qwen are those after Scale and Shift of op
// Patches.
func TestImages(t *testing.T) {
	models := processors(t)
	images := readImages(t).Images
	if len(images) != 40 {
		t.Fatalf("%d images, want 40", len(images))
	}
	for n, c := range images {
		t.Run(fmt.Sprintf("%d/%s-%dx%d", n, c.Model, c.Width, c.Height), func(t *testing.T) {
			t.Parallel()
			rule, err := models[c.Model].Image.With(c.Kwargs)
			if err != nil {
				t.Fatal(err)
			}
			g, err := rule.Size(c.Width, c.Height, 0)
			if err != nil {
				t.Fatal(err)
			}
			if g.Across != c.Across || g.Down != c.Down || g.Tokens() != c.Tokens || g.Tokens() > rule.Most() {
				t.Fatalf("got %+v of %d tokens, at most %d; want %d × %d patches, %d tokens", g, g.Tokens(), rule.Most(), c.Across, c.Down, c.Tokens)
			}
			var p Patches
			rule.Patches(&p, picture(c.Width, c.Height, c.Seed), g)
			if n := g.Across * g.Down * rule.Layout().Cols(); len(p.Pixels) != n {
				t.Fatalf("%d numbers, want %d", len(p.Pixels), n)
			}
			values := p.values(nil)
			if c.Model == "qwen" {
				for i, v := range values {
					values[i] = v*2 + -1
				}
			}
			if got := digest(t, values); got != c.Pixels {
				t.Errorf("pixel values have digest %s, want %s", got, c.Pixels)
			}
			places := make([]int32, 0, 2*len(p.Across))
			for i, a := range p.Across {
				places = append(places, a, p.Down[i])
			}
			if got := digest(t, places); got != c.Places {
				t.Errorf("positions have digest %s, want %s", got, c.Places)
			}
		})
	}
}

// values appends what the bytes of p stand for.
func (p *Patches) values(to []float32) []float32 {
	for _, b := range p.Pixels {
		to = append(to, p.Colours[b])
	}
	return to
}

// TestScaleAndShift checks that 2·x − 1, which op Patches computes, is the normalization of both
// models for every byte: (x − 0.5) / 0.5 of Qwen's image processor and 2·(x − 0.5) of Gemma's
// encoder. Qwen's video processor computes (255·x − 127.5) / 127.5, which is within 2⁻²⁴ of it.
func TestScaleAndShift(t *testing.T) {
	for b, x := range colours(1.0 / 255) {
		const half, middle = float32(0.5), float32(127.5)
		a, c, d := x*2+-1, (x-half)/half, 2*(x-half)
		if a != c || a != d {
			t.Errorf("byte %d: %v, %v, %v", b, a, c, d)
		}
		if video := (float32(b) - middle) / middle; math.Abs(float64(a)-float64(video)) > 1.0/(1<<24) {
			t.Errorf("byte %d of a frame: %v, want %v", b, a, video)
		}
	}
}

// TestResize compares with Pillow's bytes, on one goroutine and on several.
func TestResize(t *testing.T) {
	rows := readImages(t).Resizes
	if len(rows) != 17 {
		t.Fatalf("%d sizes, want 17", len(rows))
	}
	for _, r := range rows {
		var n [5]int
		for i := range n {
			n[i] = int(r[i].(float64))
		}
		src, dst := picture(n[0], n[1], uint32(n[4])), rgb.New(n[2], n[3])
		Resize(dst, src)
		if got := digest(t, dst.Pix); got != r[5] {
			t.Errorf("%d × %d to %d × %d: digest %s, want %s", n[0], n[1], n[2], n[3], got, r[5])
		}
	}
}

// TestStrips checks that the number of goroutines does not change a row.
func TestStrips(t *testing.T) {
	src := picture(301, 230, 1)
	for _, size := range [][2]int{{40, 150}, {250, 40}, {320, 240}, {301, 90}, {90, 230}} {
		w, h := size[0], size[1]
		rows := func(cuts ...int) []byte {
			out := rgb.New(w, h)
			r := newResampler(src, w, h, pillow, func(y int, row []byte) { copy(out.Row(y), row) })
			for i := 1; i < len(cuts); i++ {
				r.strip(cuts[i-1], cuts[i])
			}
			return out.Pix
		}
		if !slices.Equal(rows(0, h), rows(0, 1, 9, 10, 33, h)) {
			t.Errorf("%d × %d: rows depend on where strips begin", w, h)
		}
	}
}

// TestSizes compares sizes and refusals with the functions of transformers.
func TestSizes(t *testing.T) {
	g, models := readImages(t), processors(t)
	if len(g.SizesGemma) < 100 || len(g.SizesQwen) < 100 || len(g.SizesVideo) < 100 {
		t.Fatal("sizes are missing")
	}
	refused := 0
	check := func(name string, in []int, got Grid, err error) {
		t.Helper()
		want := in[len(in)-2:]
		var size *SizeError
		if err != nil && !errors.As(err, &size) {
			t.Errorf("%s %v: %v", name, in, err)
		}
		if err != nil && want[0] == 0 {
			refused++
			return
		}
		if err != nil || got.Width != want[0] || got.Height != want[1] {
			t.Errorf("%s %v: got %d × %d, %v", name, in, got.Width, got.Height, err)
		}
	}
	for _, r := range g.SizesGemma {
		got, err := models["gemma"].Image.Size(r[0], r[1], r[2])
		check("gemma", r, got, err)
	}
	option := func(v any) json.RawMessage {
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	for _, r := range g.SizesQwen {
		rule, err := models["qwen"].Image.With(map[string]json.RawMessage{"min_pixels": option(r[2]), "max_pixels": option(r[3])})
		if err != nil {
			t.Fatal(err)
		}
		got, err := rule.Size(r[0], r[1], 0)
		check("qwen", r, got, err)
		if got.Merge > 0 && got.Tokens() > rule.Most() {
			t.Errorf("%v: %d tokens, at most %d", r, got.Tokens(), rule.Most())
		}
	}
	for _, r := range g.SizesVideo {
		rule, err := models["qwen"].Video.With(map[string]json.RawMessage{
			"size": option(map[string]int{"shortest_edge": r[3], "longest_edge": r[4]}), "cap_pixels_per_frame": option(r[5] == 1),
		})
		if err != nil {
			t.Fatal(err)
		}
		got, err := rule.Size(r[0], r[1], r[2])
		check("video", r, got, err)
		if got.Merge > 0 && got.Tokens() > rule.Most() {
			t.Errorf("%v: %d tokens, at most %d", r, got.Tokens(), rule.Most())
		}
	}
	if refused < 10 {
		t.Errorf("%d sizes were refused, want some of each kind", refused)
	}
}

// TestVideos compares frames with the video processors: the bytes after resizing in the order of
// patches, and for Gemma pixel_values.
func TestVideos(t *testing.T) {
	videos := readImages(t).Videos
	if len(videos) != 9 {
		t.Fatalf("%d videos, want 9", len(videos))
	}
	models := processors(t)
	for _, c := range videos {
		rule := models[c.Model].Video
		g, err := rule.Size(c.Frames, c.Width, c.Height)
		if err != nil {
			t.Fatal(err)
		}
		var frames []*rgb.Image
		for i := range c.Frames {
			frames = append(frames, picture(c.Width, c.Height, uint32(i)))
		}
		var bytes []byte
		var pixels []float32
		var p Patches // reused for each item
		for item := range slices.Chunk(frames, max(rule.Layout().Frames, 1)) {
			rule.Patches(&p, item, g)
			pixels = p.values(pixels)
			bytes = append(bytes, p.Pixels...)
		}
		if d := digest(t, bytes); d != c.Bytes {
			t.Errorf("%s, %d frames of %d × %d: bytes have digest %s, want %s", c.Model, c.Frames, c.Width, c.Height, d, c.Bytes)
		}
		if d := digest(t, pixels); c.Model == "gemma" && d != c.Pixels {
			t.Errorf("%s, %d frames of %d × %d: pixel values have digest %s, want %s", c.Model, c.Frames, c.Width, c.Height, d, c.Pixels)
		}
	}
}

// TestSample compares which frames are taken and the texts before them.
func TestSample(t *testing.T) {
	sampled := readImages(t).Sampled
	if len(sampled) != 16 {
		t.Fatalf("%d videos, want 16", len(sampled))
	}
	models := processors(t)
	for _, c := range sampled {
		rule := models[c.Model].Video
		indices := rule.Sample(c.Total, c.FPS)
		labels := rule.Labels(indices, c.FPS)
		text := strings.Join(labels, "|") + "|" // the golden has a bar for each item
		var want []int
		if json.Unmarshal(c.Indices, &want) != nil {
			var sum string
			if err := json.Unmarshal(c.Indices, &sum); err != nil {
				t.Fatal(err)
			}
			small := make([]int32, len(indices))
			for i, v := range indices {
				small[i] = int32(v)
			}
			if d, l := digest(t, small), digest(t, []byte(text)); d != sum || l != c.Labels {
				t.Errorf("%s, %d frames at %v: digests %s, %s; want %s, %s", c.Model, c.Total, c.FPS, d, l, sum, c.Labels)
			}
			continue
		}
		if !slices.Equal(indices, want) || text != c.Labels {
			t.Errorf("%s, %d frames at %v: got %v, %q; want %v, %q", c.Model, c.Total, c.FPS, indices, text, want, c.Labels)
		}
	}
}
