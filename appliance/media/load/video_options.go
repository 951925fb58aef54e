package load

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"vapp.dev/appliance/chat"
	"vapp.dev/engine/vision"
)

// videoOptions are the options of a request for a video.
type videoOptions struct {
	rule    vision.VideoRule
	frames  int     // at most
	fps     float64 // of frames that were sent as images, or those to take of an animation
	rated   bool    // fps is the request's
	sample  bool    // whether these are sampled
	indices []int   // of these in the video; nil: from 0 on
	total   int     // frames of that video; 0: those that were sent
	// described has the options that only frames have that were sent as images.
	described []string
}

// videoOptions reads mm_processor_kwargs and media_io_kwargs.video, with vLLM's words where it refuses
// them too. The text has the options of both.
func (l *Loader) videoOptions(r chat.MediaRequest) (*videoOptions, string, error) {
	o := &videoOptions{rule: l.c.Video, frames: l.c.Frames, fps: 1}
	kwargs := map[string]json.RawMessage{}
	if raw, has := r.MediaKwargs["video"]; has {
		if err := json.Unmarshal(raw, &kwargs); err != nil || kwargs == nil {
			return nil, "", mediaError("media_io_kwargs.video must be an object")
		}
	}
	var err error
	if o.rule, err = l.c.Video.With(r.ProcessorKwargs); err != nil {
		return nil, "", kwargsError(err)
	}
	for _, name := range slices.Sorted(maps.Keys(kwargs)) {
		raw := kwargs[name]
		wrong := func(want string) error { return mediaError("media_io_kwargs.video: %s must be %s", name, want) }
		var duration float64
		switch name {
		case "num_frames":
			if json.Unmarshal(raw, &o.frames) != nil || o.frames < 1 || o.frames > l.c.Frames {
				return nil, "", wrong(fmt.Sprintf("from 1 to %d, multimodal.video.frames", l.c.Frames))
			}
		case "fps":
			if o.rated = true; json.Unmarshal(raw, &o.fps) != nil || o.fps <= 0 || o.fps > 1e6 {
				return nil, "", wrong("a positive number")
			}
		case "do_sample_frames":
			if json.Unmarshal(raw, &o.sample) != nil {
				return nil, "", wrong("true or false")
			}
		case "frames_indices":
			if json.Unmarshal(raw, &o.indices) != nil {
				return nil, "", wrong("a list of integers")
			}
		case "total_num_frames":
			if json.Unmarshal(raw, &o.total) != nil || o.total < 1 {
				return nil, "", wrong("a positive integer")
			}
		case "duration": // it follows from fps
			if json.Unmarshal(raw, &duration) != nil || duration < 0 {
				return nil, "", wrong("a non-negative number")
			}
		default:
			return nil, "", mediaError("media_io_kwargs.video: %s is not an option; the options are num_frames, fps, do_sample_frames, frames_indices, total_num_frames, duration", short(name))
		}
		if name != "num_frames" && name != "fps" {
			o.described = append(o.described, name)
		}
	}
	if raw, has := r.ProcessorKwargs["do_sample_frames"]; has {
		_ = json.Unmarshal(raw, &o.sample) // With has read it
	}
	options, err := json.Marshal([]any{"video", r.ProcessorKwargs, kwargs}) // keys are sorted
	return o, string(options), err
}

func mediaError(format string, args ...any) error {
	return chat.Errorf(chat.Invalid, "media_io_kwargs", format+".", args...)
}

// places returns the indices of n frames, sent as images, in their video.
func (o *videoOptions) places(n int) ([]int, error) {
	total := max(o.total, n)
	switch {
	case o.total > 0 && o.total < n:
		return nil, mediaError("total_num_frames (%d) must be >= number of frames sent (%d)", o.total, n)
	case o.indices != nil && len(o.indices) != n:
		return nil, mediaError("frames_indices length (%d) must match number of frames sent (%d)", len(o.indices), n)
	case o.sample && total > n:
		return nil, mediaError("do_sample_frames needs all frames of the video: %d of %d were sent", n, total)
	}
	out := make([]int, n)
	for k := range out {
		out[k] = k
		if o.indices == nil {
			continue
		}
		if out[k] = o.indices[k]; out[k] < 0 || out[k] > 1<<30 {
			return nil, mediaError("frames_indices has %d, which is no index of a frame", out[k])
		}
	}
	return out, nil
}

// picks returns the frames to take of an animation.
func (o *videoOptions) picks(total int, rate float64) ([]int, error) {
	if len(o.described) > 0 {
		return nil, mediaError("media_io_kwargs.video: %s describes the frames of data:video/jpeg, and the video is of another kind", o.described[0])
	}
	sample := func(option string, value any) ([]int, error) {
		rule, err := o.rule.With(map[string]json.RawMessage{option: json.RawMessage(fmt.Sprint(value)), "do_sample_frames": json.RawMessage("true")})
		if err != nil {
			return nil, kwargsError(err)
		}
		return rule.Sample(total, rate), nil
	}
	out, err := o.rule.Sample(total, rate), error(nil)
	if o.rated {
		out, err = sample("fps", o.fps)
	}
	if err == nil && len(out) > o.frames {
		out, err = sample("num_frames", o.frames)
	}
	return out, err
}
