package vision

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"vapp.dev/engine/vision/rgb"
)

// altered returns a config with other fields, given as JSON; an empty value removes one.
func altered(t *testing.T, config string, fields map[string]string) []byte {
	t.Helper()
	var all map[string]json.RawMessage
	if err := json.Unmarshal([]byte(config), &all); err != nil {
		t.Fatal(err)
	}
	for k, v := range fields {
		if all[k] = json.RawMessage(v); v == "" {
			delete(all, k)
		}
	}
	out, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestConfigRefused reads configs that ask for something else than the processors do.
func TestConfigRefused(t *testing.T) {
	const gemma = `{"image_processor_type": "Gemma4ImageProcessor"}`
	for _, c := range []struct {
		name, config string
		fields       map[string]string
		want         string
	}{
		{"no object", `[1]`, nil, "preprocessor_config.json: it is not a JSON object"},
		{"another class", gemma, map[string]string{"image_processor_type": `"SiglipImageProcessor"`}, `preprocessor_config.json: image_processor_type: "SiglipImageProcessor"; supported are Gemma4ImageProcessor and Qwen2VLImageProcessor`},
		{"no class", gemma, map[string]string{"image_processor_type": ""}, `preprocessor_config.json: image_processor_type: ""; supported are Gemma4ImageProcessor and Qwen2VLImageProcessor`},
		{"class is a number", gemma, map[string]string{"image_processor_type": "3"}, "preprocessor_config.json: image_processor_type: 3 is not a text"},
		{"no resizing", gemma, map[string]string{"do_resize": "false"}, "preprocessor_config.json: do_resize: it is false; only true is supported"},
		{"lanczos", gemma, map[string]string{"resample": "1"}, "preprocessor_config.json: resample: filter 1; only 3 (bicubic) is supported"},
		{"crop", gemma, map[string]string{"do_center_crop": "true"}, "preprocessor_config.json: do_center_crop: it is true; only false is supported"},
		{"padding", gemma, map[string]string{"do_pad": "true"}, "preprocessor_config.json: do_pad: it is true; only false is supported"},
		{"bytes", gemma, map[string]string{"do_rescale": "false"}, "preprocessor_config.json: do_rescale: it is false; only true is supported"},
		{"grey", gemma, map[string]string{"do_convert_rgb": "false"}, "preprocessor_config.json: do_convert_rgb: it is false; only true is supported"},
		{"null", gemma, map[string]string{"do_pad": "null", "max_soft_tokens": "71"}, "preprocessor_config.json: max_soft_tokens: 71 is not one of [70 140 280 560 1120]"},
		{"tokens", gemma, map[string]string{"max_soft_tokens": "300"}, "preprocessor_config.json: max_soft_tokens: 300 is not one of [70 140 280 560 1120]"},
		{"half a patch", gemma, map[string]string{"patch_size": "16.5"}, "preprocessor_config.json: patch_size: 16.5 is not a whole number from 1 to 256"},
		{"normalized", gemma, map[string]string{"do_normalize": "true", "image_mean": "[0.5, 0.5, 0.5]"}, "preprocessor_config.json: image_mean: [0.5 0.5 0.5]; only 0 for each of three channels is supported"},
		{"rescaled", gemma, map[string]string{"rescale_factor": "-1"}, "preprocessor_config.json: rescale_factor: -1 is not above 0 and at most 1"},
		{"mean of CLIP", qwenConfig, map[string]string{"image_mean": ""}, "preprocessor_config.json: image_mean: [0.48145466 0.48145466 0.48145466]; only 0.5 for each of three channels is supported"},
		{"four channels", qwenConfig, map[string]string{"image_std": "[0.5, 0.5, 0.5, 0.5]"}, "preprocessor_config.json: image_std: [0.5 0.5 0.5 0.5]; only 0.5 for each of three channels is supported"},
		{"not normalized", qwenConfig, map[string]string{"do_normalize": "false"}, "preprocessor_config.json: do_normalize: it is false; the model's encoder has pixels with mean 0.5 and deviation 0.5"},
		{"half a size", qwenConfig, map[string]string{"size": `{"longest_edge": 5}`}, "preprocessor_config.json: size: it must have shortest_edge and longest_edge"},
		{"height and width", qwenConfig, map[string]string{"size": `{"height": 5, "width": 5}`}, "preprocessor_config.json: size: it must have shortest_edge and longest_edge"},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := []byte(c.config)
			if c.fields != nil {
				config = altered(t, c.config, c.fields)
			}
			p, err := Read(Files{Image: config})
			var refused *ConfigError
			if !errors.As(err, &refused) || err.Error() != c.want {
				t.Errorf("got %v, %v; want %s", p, err, c.want)
			}
		})
	}
	if _, err := Read(Files{}); err == nil || !strings.Contains(err.Error(), "the model has neither it nor processor_config.json") {
		t.Errorf("without files: %v", err)
	}
	_, err := Read(Files{Image: []byte(qwenConfig), Video: []byte(`{"video_processor_type": "Gemma4VideoProcessor"}`)})
	if want := `video_preprocessor_config.json: video_processor_type: "Gemma4VideoProcessor"; that of this model is Qwen3VLVideoProcessor`; err == nil || err.Error() != want {
		t.Errorf("another video processor: %v", err)
	}
}

// TestConfigFiles checks which file a rule is read from.
func TestConfigFiles(t *testing.T) {
	nested := `{"image_processor": {"image_processor_type": "Gemma4ImageProcessor", "max_soft_tokens": 560}}`
	flat := []byte(`{"image_processor_type": "Gemma4ImageProcessor", "max_soft_tokens": 140}`)
	p, err := Read(Files{Processor: []byte(nested), Image: flat})
	if err != nil {
		t.Fatal(err)
	}
	if p.Image.Most() != 560 {
		t.Errorf("%d tokens, want those of processor_config.json", p.Image.Most())
	}
	if g, err := p.Video.Size(1, 640, 480); err != nil || g.Tokens() != 130 {
		t.Errorf("%d tokens of a frame, want those of preprocessor_config.json: %v", g.Tokens(), err)
	}
	if p, err = Read(Files{Processor: []byte(`{"processor_class": "Gemma4Processor"}`), Image: flat}); err != nil || p.Image.Most() != 140 {
		t.Errorf("%v, %v: want 140 tokens", p, err)
	}
	if p, err = Read(Files{Processor: []byte(nested)}); err != nil || p.Video != nil {
		t.Errorf("%v, %v: want no video", p, err)
	}
}

// TestOptions gives options of requests.
func TestOptions(t *testing.T) {
	models := processors(t)
	for _, c := range []struct{ model, kwargs, image, video string }{
		{"gemma", `{"max_soft_tokens": 1120}`, "", ""},
		{"gemma", `{"images_kwargs": {"max_soft_tokens": 1120}, "videos_kwargs": {"fps": 1}}`, "", ""},
		{"gemma", `{"max_soft_tokens": 71}`, "mm_processor_kwargs: max_soft_tokens: 71 is not one of [70 140 280 560 1120]", "same"},
		{"gemma", `{"max_tokens": 70}`, "mm_processor_kwargs: max_tokens: it is not an option of this model's processor; its options are do_convert_rgb, do_normalize, do_rescale, do_resize, do_sample_frames, fps, image_mean, image_std, max_soft_tokens, num_frames, patch_size, pooling_kernel_size, resample, rescale_factor", "same"},
		{"gemma", `{"videos_kwargs": 3}`, "mm_processor_kwargs: videos_kwargs: it is not a JSON object", "same"},
		{"gemma", `{"patch_size": 14}`, "mm_processor_kwargs: patch_size: 14; the model has 16", "same"},
		{"gemma", `{"pooling_kernel_size": 2}`, "mm_processor_kwargs: pooling_kernel_size: 2; the model has 3", "same"},
		{"gemma", `{"num_frames": 4, "fps": 1}`, "", "mm_processor_kwargs: fps: num_frames is set too; use one of them"},
		{"qwen", `{"min_pixels": 1024, "max_pixels": 4096}`, "", ""},
		{"qwen", `{"num_frames": 4}`, "", ""},
		{"qwen", `{"num_frames": 4, "fps": 1}`, "", "mm_processor_kwargs: num_frames: fps is set too; use one of them"},
		{"qwen", `{"max_pixels": 0}`, "mm_processor_kwargs: max_pixels: 0 is not a whole number from 1 to 1099511627776", "same"},
		{"qwen", `{"max_pixels": "many"}`, `mm_processor_kwargs: max_pixels: "many" is not a number`, "same"},
		{"qwen", `{"merge_size": 1}`, "mm_processor_kwargs: merge_size: 1; the model has 2", "same"},
		{"qwen", `{"size": {"shortest_edge": 5}}`, "mm_processor_kwargs: size: it must have shortest_edge and longest_edge", "same"},
		{"qwen", `{"do_resize": false}`, "mm_processor_kwargs: do_resize: it is false; only true is supported", "same"},
	} {
		var kwargs map[string]json.RawMessage
		if err := json.Unmarshal([]byte(c.kwargs), &kwargs); err != nil {
			t.Fatal(err)
		}
		if c.video == "same" {
			c.video = c.image
		}
		_, image := models[c.model].Image.With(kwargs)
		_, video := models[c.model].Video.With(kwargs)
		for kind, v := range map[string]struct {
			got  error
			want string
		}{"image": {image, c.image}, "video": {video, c.video}} {
			var refused *ConfigError
			if v.want == "" && v.got == nil || errors.As(v.got, &refused) && v.got.Error() == v.want {
				continue
			}
			t.Errorf("%s of %s, %s: got %v, want %s", kind, c.model, c.kwargs, v.got, v.want)
		}
	}
}

// TestBudgets checks the limit of tokens that a caller gives.
func TestBudgets(t *testing.T) {
	models := processors(t)
	g, err := models["gemma"].Image.Size(640, 480, 70)
	if err != nil || g.Tokens() != 63 || g.Span(5) != (Span{At: 5, Across: 9, Down: 7}) {
		t.Errorf("%+v, %v: want 63 tokens", g, err)
	}
	var refused *ConfigError
	if _, err = models["gemma"].Image.Size(640, 480, 100); !errors.As(err, &refused) {
		t.Errorf("a budget of 100 tokens: %v", err)
	}
	if g, err = models["qwen"].Image.Size(4000, 3000, 100); err != nil || g.Tokens() > 100 || g.Tokens() < 80 {
		t.Errorf("%+v, %v: want at most 100 tokens", g, err)
	}
	if _, err = models["qwen"].Image.Size(4000, 3000, -1); !errors.As(err, &refused) {
		t.Errorf("a negative budget: %v", err)
	}
}

// TestSmallVideos samples videos of fewer frames than a rule takes.
func TestSmallVideos(t *testing.T) {
	models := processors(t)
	if got := models["gemma"].Video.Sample(3, 30); len(got) != 3 || got[2] != 2 {
		t.Errorf("Gemma samples %v of 3 frames", got)
	}
	if got := models["qwen"].Video.Sample(1, 30); len(got) != 1 || got[0] != 0 {
		t.Errorf("Qwen samples %v of 1 frame", got)
	}
	for _, m := range models {
		if got := m.Video.Sample(0, 0); len(got) != 0 {
			t.Errorf("%v of no frames", got)
		}
	}
	var refused *SizeError
	if _, err := models["qwen"].Video.Size(1, 64, 64); !errors.As(err, &refused) || !strings.Contains(err.Error(), "a video of 1 frames; from 2 to 8192 are supported") {
		t.Errorf("a video of one frame: %v", err)
	}
}

// TestOwnMemory checks that patches go to the caller's memory where it has enough.
func TestOwnMemory(t *testing.T) {
	rule := processors(t)["qwen"].Image
	g, err := rule.Size(64, 64, 0)
	if err != nil {
		t.Fatal(err)
	}
	n := g.Across * g.Down
	memory := Patches{Pixels: make([]byte, n*rule.Layout().Cols()+5), Across: make([]int32, n), Down: make([]int32, n)}
	p := memory
	rule.Patches(&p, rgb.New(64, 64), g)
	if &p.Pixels[0] != &memory.Pixels[0] || &p.Across[0] != &memory.Across[0] || &p.Down[0] != &memory.Down[0] || len(p.Pixels) != n*1536 {
		t.Errorf("%d numbers in other memory", len(p.Pixels))
	}
}
