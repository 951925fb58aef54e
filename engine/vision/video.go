package vision

import "encoding/json"

// sampling is which frames of a video are encoded.
type sampling struct {
	all    bool    // every frame
	frames int     // their number; 0: by fps
	fps    float64 // frames a second; 0: by number
}

// maxFrames is the maximum number of sampled frames: the product of frames and sides fits in 64
// bits.
const maxFrames = 1 << 13

// known returns the frames a second of a video; processors assume 24 where they are not known.
func known(fps float64) float64 {
	if fps > 0 {
		return fps
	}
	return 24
}

// exclusive removes num_frames or fps of the config where a request has the other.
func (f *fields) exclusive(kwargs map[string]json.RawMessage) {
	_, number := kwargs["num_frames"]
	_, rate := kwargs["fps"]
	switch {
	case number && !rate:
		f.in["fps"] = json.RawMessage("null")
	case rate && !number:
		delete(f.in, "num_frames")
	}
}
