package vision

import (
	"encoding/json"
	"fmt"
	"math"

	"vapp.dev/engine/vision/rgb"
)

// qwenVideo is the rule of Qwen3-VL and Qwen3.5 for videos: items of two frames, all of one size.
// The bounds of pixels are of all frames together.
type qwenVideo struct {
	qwen
	sampling
	minFrames, maxFrames int
	capped               bool // a frame has at most frameTokens tokens, or its share of the pixels
	frameTokens          int
}

func newQwenVideo(f *fields) (*qwenVideo, error) {
	q, err := readQwen(f, 16, 128*32*32, 32*32*768, defaults{normalize: true, mean: 0.5, deviation: 0.5})
	if err != nil {
		return nil, err
	}
	v := &qwenVideo{
		qwen: *q, minFrames: f.whole("min_frames", 1, maxFrames, 4), maxFrames: f.whole("max_frames", 1, maxFrames, 768),
		capped: f.flag("cap_pixels_per_frame", false), frameTokens: f.whole("max_video_tokens", 1, 1<<20, 768),
		sampling: sampling{all: !f.flag("do_sample_frames", true), fps: 2},
	}
	if f.has("num_frames") {
		v.frames = f.whole("num_frames", 1, maxFrames, 1)
		if f.has("fps") {
			f.fail("num_frames", "fps is set too; use one of them")
		}
	}
	v.fps = f.real("fps", 1e6, v.fps)
	return v, f.err
}

// Sample returns frames at equal distances, the first and the last among them.
func (v *qwenVideo) Sample(total int, fps float64) []int {
	n := v.frames
	switch {
	case v.all:
		n = total
	case n == 0:
		n = min(max(int(float64(total)/known(fps)*v.fps), v.minFrames), v.maxFrames)
	}
	n = min(n, total)
	out := make([]int, n)
	step := float64(total-1) / float64(max(n-1, 1))
	for i := range out {
		out[i] = int(math.RoundToEven(float64(i) * step))
	}
	if n > 1 {
		out[n-1] = total - 1
	}
	return out
}

// Size is smart_resize of transformers' video processor.
func (v *qwenVideo) Size(n, width, height int) (Grid, error) {
	if err := checkSide(width, height); err != nil {
		return Grid{}, err
	}
	if n < v.layout.Frames || n > maxFrames {
		return Grid{}, &SizeError{width, height, fmt.Sprintf("a video of %d frames; from %d to %d are supported", n, v.layout.Frames, maxFrames)}
	}
	unit, most := v.unit(), v.most
	if v.capped {
		share := max(min(v.frameTokens*unit*unit, v.most/n), int(float64(v.least)*1.05))
		most = share * n
	}
	if height < unit || width < unit {
		scale := max(float64(unit)/float64(height), float64(unit)/float64(width))
		height, width = int(float64(height)*scale), int(float64(width)*scale)
	}
	if err := ratio(width, height); err != nil {
		return Grid{}, err
	}
	frames := v.layout.Frames
	whole := int(math.RoundToEven(float64(n)/float64(frames))) * frames
	return v.fit(n, whole, width, height, most), nil
}

// Most is that of an image with the pixels of a frame of the shortest video.
func (v *qwenVideo) Most() int {
	q := v.qwen
	q.most, q.least = v.most/v.layout.Frames, v.least/v.layout.Frames
	if v.capped {
		q.most = max(min(v.frameTokens*v.unit()*v.unit(), q.most), int(float64(v.least)*1.05))
	}
	return q.Most()
}

func (v *qwenVideo) Patches(dst *Patches, frames []*rgb.Image, g Grid) {
	v.layout.write(dst, frames, g, torchvision, v.colours)
}

// Labels returns the mean time of the first and the last frame of each item.
func (v *qwenVideo) Labels(frames []int, fps float64) []string {
	var out []string
	for i := 0; i < len(frames); i += v.layout.Frames {
		first, last := frames[i], frames[min(i+v.layout.Frames, len(frames))-1]
		out = append(out, fmt.Sprintf("<%.1f seconds>", (float64(first)/known(fps)+float64(last)/known(fps))/2))
	}
	return out
}

func (v *qwenVideo) With(kwargs map[string]json.RawMessage) (VideoRule, error) {
	if len(kwargs) == 0 {
		return v, nil
	}
	f, over, err := v.override(kwargs, "videos_kwargs")
	if err != nil {
		return nil, err
	}
	f.exclusive(over)
	out, err := newQwenVideo(f)
	if err != nil {
		return nil, err
	}
	return out, out.same(&v.qwen, f)
}
