package vision

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// Files are the files of a model that configure its processor; nil where there is none.
type Files struct {
	Processor []byte // processor_config.json
	Image     []byte // preprocessor_config.json
	Video     []byte // video_preprocessor_config.json
}

// family is a kind of processor: its names in image_processor_type, and its rules.
type family struct {
	images, videos []string
	image          func(*fields) (Rule, error)
	video          func(*fields) (VideoRule, error)
}

func families() []family {
	return []family{
		{
			images: []string{"Gemma4ImageProcessor", "Gemma4ImageProcessorFast", "Gemma4ImageProcessorPil"}, videos: []string{"Gemma4VideoProcessor"},
			image: func(f *fields) (Rule, error) { return newGemma(f) }, video: func(f *fields) (VideoRule, error) { return newGemmaVideo(f) },
		},
		{
			images: []string{"Qwen2VLImageProcessor", "Qwen2VLImageProcessorFast", "Qwen2VLImageProcessorPil"}, videos: []string{"Qwen3VLVideoProcessor"},
			image: func(f *fields) (Rule, error) { return newQwen(f) }, video: func(f *fields) (VideoRule, error) { return newQwenVideo(f) },
		},
	}
}

// Read returns the processor that files describe. As in transformers, objects in
// processor_config.json come before the other files, and a video processor without a file has the
// fields of the image processor. Fields that are not known are ignored, as transformers does; known
// ones with a value that is not supported are *ConfigError.
func Read(files Files) (*Processor, error) {
	image, video := (*fields)(nil), (*fields)(nil)
	if files.Processor != nil {
		all := parseFields("processor_config.json", files.Processor)
		if all.err != nil {
			return nil, all.err
		}
		image, video = all.object("image_processor"), all.object("video_processor")
	}
	if files.Image != nil && image == nil {
		image = parseFields("preprocessor_config.json", files.Image)
	}
	if files.Video != nil && video == nil {
		video = parseFields("video_preprocessor_config.json", files.Video)
	}
	if image == nil {
		return nil, &ConfigError{"preprocessor_config.json", "the model has neither it nor processor_config.json with an image_processor; fetch it from where the model is published"}
	}
	if video == nil && files.Image != nil {
		video = parseFields("preprocessor_config.json", files.Image)
	}
	return read(image, video)
}

func read(image, video *fields) (*Processor, error) {
	if image.err != nil {
		return nil, image.err
	}
	kind := image.text("image_processor_type")
	var known []string
	for _, f := range families() {
		known = append(known, f.images[0])
		if !slices.Contains(f.images, kind) {
			continue
		}
		rule, err := f.image(image)
		if err != nil {
			return nil, err
		}
		if video == nil {
			return &Processor{Image: rule}, nil
		}
		if kind := video.text("video_processor_type"); kind != "" && !slices.Contains(f.videos, kind) {
			video.fail("video_processor_type", "%.60q; that of this model is %s", kind, f.videos[0])
		}
		moving, err := f.video(video)
		if err != nil {
			return nil, err
		}
		return &Processor{rule, moving}, nil
	}
	image.fail("image_processor_type", "%.60q; supported are %s", kind, strings.Join(known, " and "))
	return nil, image.err
}

// steps checks the fields that all processors share and returns the colours of bytes. Pixels are
// resampled, rescaled, and normalized by the model's program: to nothing else than mean and
// deviation, which are 0 and 1 where normalize is not set.
func (f *fields) steps(normalize bool, mean, deviation float64, defaults defaults) *[256]float32 {
	f.must("do_resize", true, true)
	f.must("do_rescale", true, true)
	f.must("do_convert_rgb", true, true)
	f.must("do_center_crop", false, false)
	f.must("do_pad", false, false)
	if n := f.whole("resample", 0, 6, bicubic); n != bicubic {
		f.fail("resample", "filter %d; only %d (bicubic) is supported", n, bicubic)
	}
	if f.flag("do_normalize", defaults.normalize) {
		f.each("image_mean", mean, defaults.mean)
		f.each("image_std", deviation, defaults.deviation)
	} else if normalize {
		f.fail("do_normalize", "it is false; the model's encoder has pixels with mean %v and deviation %v", mean, deviation)
	}
	return colours(f.real("rescale_factor", 1, 1.0/255))
}

// bicubic is Pillow's number of the filter.
const bicubic = 3

// defaults are those of a processor class.
type defaults struct {
	normalize       bool
	mean, deviation float64
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func list(set map[string]bool) string { return strings.Join(sortedKeys(set), ", ") }

// override returns the fields of a rule with the options of a request, and these options. A group of
// options for one kind of media, as transformers has it, is taken apart; options of the other kind
// have no effect.
func (f *fields) override(kwargs map[string]json.RawMessage, group string, known map[string]bool) (out *fields, over map[string]json.RawMessage, err error) {
	over = maps.Clone(kwargs)
	for _, name := range []string{"images_kwargs", "videos_kwargs"} {
		raw, ok := over[name]
		if !ok {
			continue
		}
		delete(over, name)
		inner := parseFields("mm_processor_kwargs: "+name, raw)
		inner.only(inner.in, known)
		if inner.err != nil {
			return nil, nil, inner.err
		}
		if name == group {
			maps.Copy(over, inner.in)
		}
	}
	out = f.with(over)
	out.only(over, known)
	return out, over, out.err
}
