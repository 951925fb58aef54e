package load

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"

	"vapp.dev/appliance/chat"
	"vapp.dev/appliance/media"
	"vapp.dev/appliance/media/fetch"
	"vapp.dev/engine/vision"
	"vapp.dev/engine/vision/rgb"
)

// clip is a video that is being loaded: the frames to encode.
type clip struct {
	info    media.Info // of a frame, or of the animation
	indices []int      // of the frames in the video
	rate    float64    // frames a second; 0: unknown
	// buffer is how many frames are decoded at a time.
	buffer int
	// frames returns the frames from to end−1 of indices.
	frames func(from, end int) ([]*rgb.Image, error)
}

// video fetches a video, decodes its frames and resizes them, unless one of equal data and options is
// kept. Frames are those of data:video/jpeg;base64,F1,F2,… as vLLM has it, or of a GIF or a WebP.
func (l *Loader) video(ctx context.Context, held *holding, r chat.MediaRequest) (*item, string, error) {
	o, options, err := l.videoOptions(r)
	if err != nil {
		return nil, "", err
	}
	if r.URL == "" {
		i, err := l.named(held, r, options)
		return i, options, err
	}
	var files [][]byte
	list := false
	if fetch.IsData(r.URL) {
		kind, _, err := fetch.SplitData(r.URL)
		if err != nil {
			return nil, "", err
		}
		list = strings.EqualFold(kind, "video/jpeg")
	}
	if list {
		files, err = l.fetch.List(r.URL, o.frames, held.reserve)
	} else {
		var got fetch.Item
		got, err = l.fetch.Get(ctx, r.URL, held.reserve)
		files = [][]byte{got.Data}
	}
	if err != nil {
		return nil, "", err
	}
	key := keyOf(options+fmt.Sprint(list), files...)
	if i := l.cache.data(key); i != nil {
		return i, options, held.reserve(i.bytes())
	}
	var c *clip
	if list {
		c, err = l.sequence(files, o)
	} else {
		c, err = l.animation(files[0], o)
	}
	if err != nil {
		return nil, "", err
	}
	i, err := l.encode(ctx, held, c, o.rule, r)
	if err != nil {
		return nil, "", err
	}
	i.key = key
	l.cache.add(i)
	return i, options, nil
}

// sequence returns the clip of frames that were sent as images.
func (l *Loader) sequence(files [][]byte, o *videoOptions) (*clip, error) {
	n := len(files)
	c := &clip{rate: o.fps, buffer: max(o.rule.Layout().Frames, 1)}
	for k, f := range files {
		info, err := media.Header(f)
		if err == nil {
			err = l.small(info)
		}
		if err != nil {
			return nil, err
		}
		if k == 0 {
			c.info = info
		}
		w, h := info.Size()
		if wide, high := c.info.Size(); w != wide || h != high {
			return nil, chat.Errorf(chat.Invalid, "messages", "all input arrays must have the same shape: frame %d of a video has %d × %d pixels, the first %d × %d.", k, w, h, wide, high)
		}
	}
	places, err := o.places(n)
	if err != nil {
		return nil, err
	}
	taken := places
	if o.sample {
		taken = o.rule.Sample(n, c.rate)
		c.indices = taken
	} else {
		c.indices = places
		taken = make([]int, n)
		for k := range taken {
			taken[k] = k
		}
	}
	c.frames = func(from, end int) (out []*rgb.Image, err error) {
		for _, k := range taken[from:end] {
			m, err := media.Decode(files[k], media.Bounds{Pixels: l.c.Pixels})
			if err != nil {
				return nil, err
			}
			out = append(out, m)
		}
		return out, nil
	}
	return c, nil
}

// animation returns the clip of a GIF or a WebP. Pixels bound those of all frames up to the last one
// that is taken.
func (l *Loader) animation(data []byte, o *videoOptions) (*clip, error) {
	info, err := media.Animation(data)
	if err != nil {
		return nil, err
	}
	if err := l.small(info); err != nil {
		return nil, err
	}
	c := &clip{info: info, rate: info.Rate()}
	if c.indices, err = o.picks(info.Frames, c.rate); err != nil {
		return nil, err
	}
	c.buffer = len(c.indices)
	var all []media.Frame
	c.frames = func(from, end int) (out []*rgb.Image, err error) {
		if all == nil {
			if all, err = media.Frames(data, media.Bounds{Pixels: l.c.Pixels}, c.indices); err != nil {
				return nil, err
			}
		}
		for _, f := range all[from:end] {
			out = append(out, f.Image)
		}
		return out, nil
	}
	return c, nil
}

// encode makes the item of a clip.
func (l *Loader) encode(ctx context.Context, held *holding, c *clip, rule vision.VideoRule, r chat.MediaRequest) (*item, error) {
	n, per := len(c.indices), max(rule.Layout().Frames, 1)
	w, h := c.info.Size()
	grid, err := rule.Size(n, w, h)
	if err == nil {
		err = l.fits(grid, r)
	}
	if err != nil {
		return nil, err
	}
	labels := rule.Labels(c.indices, c.rate)
	// Two frames more: a decoder may have one in another form beside them.
	if err := held.reserve(3*int64(w)*int64(h)*int64(c.buffer+2) + patchBytes(grid, rule.Layout())*int64(len(labels))); err != nil {
		return nil, err
	}
	i, h256 := &item{}, sha256.New()
	for k, text := range labels {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		frames, err := c.frames(k*per, min(k*per+per, n))
		if err != nil {
			return nil, err
		}
		label, err := r.Encode(text)
		if err != nil {
			return nil, err
		}
		p := &picture{tokens: grid.Tokens()}
		rule.Patches(&p.patches, frames, grid)
		i.add(p, l.c.VideoTokens, label)
		h256.Write(p.hash[:])
		h256.Write([]byte(text))
	}
	i.hash = [32]byte(h256.Sum(nil))
	return i, nil
}
