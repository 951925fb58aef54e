package compat

import "math"

// dummyItem is the image or video with which a release profiles the encoder, repeated as often as it
// fits into the encoder budget.
type dummyItem struct {
	modality string // image or video
	tokens   int64  // of the prompt, with those between frames
	out      int64  // encoded rows
	frames   int64  // that are encoded apart; 1 for an image
	patches  int64  // of a frame
	items    int64  // in the batch
}

// Sizes of the published processor of Qwen3.5 (preprocessor_config.json, video_preprocessor_config.json),
// which config.json does not have. A dummy video has two frames.
const (
	qwenImagePixels = 1 << 24
	qwenVideoPixels = 25_165_824
)

// dummy returns the item of the modality with the most tokens; nil for a model or a request without an
// encoder, and for one whose inputs this release was not seen with.
func (in *run) dummy() *dummyItem {
	v, r := in.shape.vision, &in.r
	if v == nil || r.TextOnly {
		return nil
	}
	var image, video dummyItem
	switch in.shape.family {
	case gemma4:
		tokens := v.imageTokens
		if r.ImageTokens > 0 {
			tokens = int64(r.ImageTokens)
		}
		image = dummyItem{"image", tokens, tokens, 1, tokens * v.pool * v.pool, 1}
		video = dummyItem{"video", v.frames * (v.itemTokens + 2 + 6), v.frames * v.itemTokens, v.frames, v.pixelPatches, 1}
	case qwen35:
		if !in.rel.atLeast(V033) {
			return nil
		}
		pixels := int64(qwenImagePixels)
		if r.MaxPixels > 0 {
			pixels = r.MaxPixels
		}
		square := v.merge * v.merge
		one := func(name string, pixels int64) dummyItem {
			n := mostSquares(max(1, pixels/(v.side*v.side*square)))
			return dummyItem{name, n, n, 1, n * square, 1}
		}
		image, video = one("image", pixels), one("video", qwenVideoPixels/2)
	default:
		return nil
	}
	most := &image
	if r.NoImages || !r.NoVideo && video.tokens >= image.tokens { // of equal ones the later name
		most = &video
	}
	if in.rel.atLeast(V033) {
		prompts := int64(r.MaxNumSeqs) * max(1, in.length/max(1, most.tokens)) // the limit of a prompt is above this
		most.items = max(1, min(max(int64(r.MaxNumBatchedTokens), most.tokens)/max(1, most.tokens), prompts))
	}
	return most
}

// mostSquares returns the largest number of tokens up to n that form a rectangle with sides of a ratio
// of at most 200.
func mostSquares(n int64) int64 {
	for ; n > 1; n-- {
		side := int64(math.Sqrt(float64(n)))
		for n%side != 0 {
			side--
		}
		if n/side <= 200*side {
			break
		}
	}
	return n
}

// encoderPass returns the pieces of the encoder's pass over the dummy items in vllm-0.33: an estimate
// from the tower's layers, since no log shows it. A block holds its residual, the normed input, and the
// intermediate values of its MLP; attention holds less. Gemma 4's frames go through the tower in
// chunks: as many as half of the free memory, and a tenth of all, take in one-hot positions.
func (in *run) encoderPass(free int64) []piece {
	d, v, e := in.dummy(), in.shape.vision, in.dtype
	if d == nil || !in.rel.atLeast(V033) {
		return nil
	}
	units := d.items * d.frames
	pixels, wide := units*d.patches*v.patch*4, 2*v.inter/int64(in.r.TensorParallel)
	if in.shape.family == gemma4 {
		wide = 3 * v.inter // gate, up and their product; the tower is whole on each rank
		units = min(units, max(1, min(free/2, in.d.TotalBytes/10)/(d.patches*4*v.positions*8)))
	}
	return []piece{{"encoder pixels", pixels}, {"encoder block", units * d.patches * (2*v.hidden + wide) * e}}
}

// encoderBudget returns the size of the encoder cache in tokens: the larger of the batch and the
// largest item with its begin, end and timestamp tokens.
func (in *run) encoderBudget() int64 {
	d := in.dummy()
	if d == nil {
		return 0
	}
	return max(int64(in.r.MaxNumBatchedTokens), d.tokens)
}

// encoderBasis returns the basis of that budget: logs show it for Gemma 4 with videos.
func (in *run) encoderBasis() Basis {
	if d := in.dummy(); in.shape.family == gemma4 && d.modality == "video" {
		return Exact
	}
	return Derived
}
