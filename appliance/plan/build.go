package plan

import (
	"slices"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/models"
	"vapp.dev/engine/speculate"
	"vapp.dev/kernels"
	"vapp.dev/schema"
)

// Source returns the model that a profile names with its build: the first rank's part, the dtype,
// quantization at load, the model's own draft head, the vision tower, the rebuilding of keys
// from values, and the slots of LoRA adapters. A config other than "" replaces the model that the profile names.
func Source(p *schema.Profile, config string) engine.Source {
	return engine.Source{
		Path: p.Path(p.Model.Source), Name: p.Model.Source, Format: p.Model.LoadFormat, Config: config, Draft: draftSource(p), Pooling: poolingOptions(p), Edits: edits(p),
		Build: models.Build{
			Shard: backend.Shard{World: max(1, p.Parallel.Tensor)}, Pipe: backend.Shard{World: max(1, p.Parallel.Pipeline)},
			Dtype:    dtypeFormat(p.Model.Dtype),
			Quantize: quantizeFormats[p.Quantization], Draft: ownDrafts(p), Verify: drafts(p), Vision: vision(p), Rebuild: p.Memory.KVRebuild, LoRA: slots(p),
		},
	}
}

// slots returns the LoRA slots that the profile asks for; the zero LoRA has none.
func slots(p *schema.Profile) models.LoRA {
	if p.LoRA == nil {
		return models.LoRA{}
	}
	return models.LoRA{Slots: p.LoRA.MaxLoras, Rank: p.LoRA.MaxRank}
}

// dtypeFormat returns the format named by model.dtype, Invalid for auto.
func dtypeFormat(word string) kernels.Format {
	f, _ := dtypeOf(word)
	return f
}

// quantizeFormats are the formats of the field quantization; int8 has one scale for 32 integers.
var quantizeFormats = map[string]kernels.Format{"fp8": kernels.F8E4M3, "int8": kernels.Q8_0, "mxfp4": kernels.MXFP4}

// ownDrafts returns how many tokens the model's own head or a draft model proposes for each step.
func ownDrafts(p *schema.Profile) int {
	if s := p.Speculative; s != nil && (s.Method == "mtp" || s.Method == "draft_model" && s.Model != "") {
		return s.NumTokens
	}
	return 0
}

// draftSource returns the draft model that speculative.model names, with dummy weights if the
// model has them; nil if the method needs none.
func draftSource(p *schema.Profile) *engine.Source {
	s := p.Speculative
	if s == nil || s.Method != "draft_model" || s.Model == "" {
		return nil
	}
	format := "auto"
	if p.Model.LoadFormat == "dummy" {
		format = "dummy"
	}
	return &engine.Source{Path: p.Path(s.Model), Name: s.Model, Format: format}
}

// drafts returns how many proposed tokens a step verifies for each sequence.
func drafts(p *schema.Profile) int {
	if p.Speculative == nil {
		return 0
	}
	return p.Speculative.NumTokens
}

// lookup returns the options of method ngram. As in vLLM, the default is n-grams of 5 tokens,
// and if only one bound is given, both have its value.
func lookup(p *schema.Profile) (speculate.NGram, error) {
	s := p.Speculative
	if s == nil {
		return speculate.NGram{}, nil
	}
	g := speculate.NGram{Min: s.PromptLookupMin, Max: s.PromptLookupMax}
	switch {
	case s.Method != "ngram" && g.Min > 0:
		return g, p.Reject("speculative.promptLookupMin", "%s looks up no n-grams; allowed: only with method ngram", s.Method)
	case s.Method != "ngram" && g.Max > 0:
		return g, p.Reject("speculative.promptLookupMax", "%s looks up no n-grams; allowed: only with method ngram", s.Method)
	case s.Method == "draft_model" && s.Model == "":
		return g, p.Reject("speculative.method", "draft_model needs the source of a draft model; set speculative.model")
	case s.Method != "ngram":
		return g, nil
	case g == speculate.NGram{}:
		return speculate.NGram{Min: 5, Max: 5}, nil
	case g.Min == 0:
		g.Min = g.Max
	case g.Max == 0:
		g.Max = g.Min
	}
	if err := g.Validate(); err != nil {
		return g, p.Reject("speculative.promptLookupMin", "%d tokens are more than promptLookupMax, %d; allowed: at most that", g.Min, g.Max)
	}
	return g, nil
}

// vision reports whether requests may contain images or video.
func vision(p *schema.Profile) bool {
	return p.Multimodal != nil && p.Multimodal.Limits.Image+p.Multimodal.Limits.Video > 0
}

// items returns the patches of the largest image or frame of a video that the profile asks for; zero:
// the model's.
func items(p *schema.Profile, m *engine.Model) (o engine.ItemOptions) {
	if sees, has := m.Family.(models.Encoder); has && vision(p) && sees.Images().Square > 0 {
		image, frame := imagePatches(p, sees), framePatches(p, sees)
		o.Patches = max(image, frame)
	}
	return o
}

// imagePatches returns the patches of the largest image, 0 if the profile allows none.
func imagePatches(p *schema.Profile, sees models.Encoder) int {
	shape, image := sees.Images(), p.Multimodal.Image
	switch {
	case p.Multimodal.Limits.Image == 0:
		return 0
	case image != nil && image.Tokens > 0:
		return image.Tokens * shape.Square
	case image != nil && image.MaxPixels > 0:
		return patchesOf(shape, image.MaxPixels)
	}
	return sees.Patches()
}

// framePatches returns the patches of the largest part of a video that is encoded alone, 0 if the
// profile allows none.
func framePatches(p *schema.Profile, sees models.Encoder) int {
	shape, video := sees.Images(), p.Multimodal.Video
	switch {
	case p.Multimodal.Limits.Video == 0:
		return 0
	case video != nil && video.MaxPixels > 0:
		return patchesOf(shape, video.MaxPixels/shape.Frames)
	}
	return shape.Frame
}

func patchesOf(s models.ImageShape, pixels int) int {
	return max(1, pixels/(s.Side*s.Side*s.Square)) * s.Square
}

// Images returns how the images and videos of requests become tokens, and the most tokens of an image
// or a frame that the plan has memory for; 0 if the profile allows none.
func Images(p *schema.Profile, m *engine.Model) (shape models.ImageShape, most int) {
	n := items(p, m).Patches
	if n == 0 {
		return shape, 0
	}
	shape = m.Family.(models.Encoder).Images()
	return shape, n / shape.Square
}

// checkImages refuses sizes of images and videos that the model does not have.
func checkImages(p *schema.Profile, m *engine.Model) error {
	sees, has := m.Family.(models.Encoder)
	if !has || !vision(p) || sees.Images().Square == 0 {
		return nil
	}
	image, video, budgets := schema.MediaImage{}, schema.MediaVideo{}, sees.Images().Budgets
	if p.Multimodal.Image != nil {
		image = *p.Multimodal.Image
	}
	if p.Multimodal.Video != nil {
		video = *p.Multimodal.Video
	}
	const frame = "%s has 70 tokens for a frame of a video; leave it out"
	switch name := m.Source.Name; {
	case image.Tokens > 0 && !budgets:
		return p.Reject("multimodal.image.tokens", "%s bounds an image by its pixels; set multimodal.image.maxPixels", name)
	case image.MaxPixels > 0 && budgets:
		return p.Reject("multimodal.image.maxPixels", "%s has a budget of tokens for an image; set multimodal.image.tokens", name)
	case image.MinPixels > 0 && image.MaxPixels > 0 && image.MinPixels > image.MaxPixels:
		return p.Reject("multimodal.image.minPixels", "%d pixels are more than maxPixels, %d; allowed: at most that", image.MinPixels, image.MaxPixels)
	case image.MinPixels > 0 && budgets:
		return p.Reject("multimodal.image.minPixels", "%s has a budget of tokens for an image; set multimodal.image.tokens", name)
	case video.MaxPixels > 0 && budgets:
		return p.Reject("multimodal.video.maxPixels", frame, name)
	case video.MinPixels > 0 && budgets:
		return p.Reject("multimodal.video.minPixels", frame, name)
	}
	return nil
}

// checkBuild refuses what the profile requires and the model does not have.
func (w resolved) checkBuild() error {
	p := w.in.Profile
	if err := w.checkPooling(); err != nil {
		return err
	}
	return CheckImages(p, w.in.Model)
}

// CheckImages refuses limits and sizes of images that the model, which was built for the profile,
// cannot serve.
func CheckImages(p *schema.Profile, m *engine.Model) error {
	if p.Multimodal != nil && p.Multimodal.Limits.Audio > 0 {
		return p.Reject("multimodal.limits.audio", "%d clips a request, but no family of this release hears; allowed: 0", p.Multimodal.Limits.Audio)
	}
	if err := checkImages(p, m); err != nil {
		return err
	}
	if _, sees := m.Family.(models.Encoder); m.Source.Build.Vision && !sees {
		path := "multimodal.limits.image"
		if p.Multimodal != nil && p.Multimodal.Limits.Image == 0 {
			path = "multimodal.limits.video"
		}
		return p.Reject(path, "%s has no vision tower; allowed: 0", m.Source.Name)
	}
	return nil
}

// ownPages returns the bytes of one page of each class, summed.
func ownPages(w resolved, m *engine.Model) int64 {
	var n int64
	for _, c := range m.Family.Classes(w.options.BlockSize, w.options.KVFormat) {
		n += c.PageBytes()
	}
	return n
}

// graphs returns the step sizes that backend cuda captures. If the profile names none, they
// follow vLLM's rule: 1, 2, 4, every 8 below 256, every 16 from there, up to min(maxNumSeqs × q ×
// 2, 512) and at most maxNumBatchedTokens. q is the tokens of a sequence in a step that verifies
// drafts, and all sizes are multiples of it. full_decode_only stops at maxNumSeqs × q.
func (w resolved) graphs() (backend.Graphs, error) {
	p, o := w.in.Profile, w.options
	g := backend.Graphs{Mode: "full_and_piecewise"}
	if p.Cudagraph != nil {
		g.Mode = p.Cudagraph.Mode
	}
	if w.graphsOff {
		g.Mode = "none"
	}
	if g.Mode == "none" {
		return g, nil
	}
	q := 1 + o.Drafts
	sizes := schema.CaptureSizes(min(o.MaxNumSeqs*q*2, 512, o.MaxNumBatchedTokens))
	if p.Cudagraph != nil && len(p.Cudagraph.CaptureSizes) > 0 {
		sizes = slices.Sorted(slices.Values(p.Cudagraph.CaptureSizes))
		if n := sizes[len(sizes)-1]; n > o.MaxNumBatchedTokens {
			return g, p.Reject("cudagraph.captureSizes", "%d tokens are more than a step has; allowed: at most maxNumBatchedTokens, %d", n, o.MaxNumBatchedTokens)
		}
	}
	g.Sizes, g.Query = multiples(sizes, q), q
	if g.Mode == "full_decode_only" {
		g.Sizes = slices.DeleteFunc(g.Sizes, func(n int) bool { return n > o.MaxNumSeqs*q })
	}
	return g, nil
}

// multiples rounds ascending sizes up to multiples of q. It drops duplicates and sizes above the
// largest given one.
func multiples(sizes []int, q int) []int {
	var out []int
	for _, n := range sizes {
		n = (n + q - 1) / q * q
		if n <= sizes[len(sizes)-1] && (len(out) == 0 || n > out[len(out)-1]) {
			out = append(out, n)
		}
	}
	return out
}
