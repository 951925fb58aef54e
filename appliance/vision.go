package appliance

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"vapp.dev/appliance/media/fetch"
	"vapp.dev/appliance/media/load"
	"vapp.dev/appliance/plan"
	"vapp.dev/engine"
	"vapp.dev/engine/vision"
	"vapp.dev/schema"
)

// newVision returns what loads the images and videos of requests, nil if the profile allows none. It
// reads the files of the model's processor. memory is that of all loaders of a server.
func newVision(p *schema.Profile, m *engine.Model, memory *load.Memory) (*load.Loader, error) {
	shape, most := plan.Images(p, m)
	if most == 0 {
		return nil, nil
	}
	a := p.Multimodal
	rules, err := checkedProcessor(p, m)
	if err != nil {
		return nil, err
	}
	c := load.Config{
		Rule: rules.Image, Limits: map[string]int{"image": a.Limits.Image, "video": a.Limits.Video}, MaxTokens: most, Frames: 32,
		Policy:  fetch.Policy{AllowedDomains: a.AllowedDomains, Redirects: a.Redirects, MaxBytes: int64(a.MaxFetchBytes)},
		Timeout: time.Duration(a.FetchTimeout.Image), VideoTimeout: time.Duration(a.FetchTimeout.Video), Pixels: a.MaxSourcePixels,
		Memory: int64(a.LoadMemory), Cache: int64(a.Cache), TrustKwargs: a.TrustRequestKwargs,
	}
	if a.Video != nil {
		c.Frames = a.Video.Frames
	}
	if a.Limits.Video > 0 {
		c.Video = rules.Video
	}
	if err := placeholders(&c, p, m, shape.Budgets); err != nil {
		return nil, err
	}
	if a.AllowedPath != "" {
		c.Policy.AllowedPath = p.Path(a.AllowedPath)
	}
	l, err := load.New(c, memory)
	if err != nil {
		field := "multimodal.allowedDomains"
		if a.AllowedPath != "" {
			field = "multimodal.allowedPath"
		}
		return nil, p.Reject(field, "%v", err)
	}
	return l, nil
}

// placeholders sets the tokens of images and videos, which config.json names.
func placeholders(c *load.Config, p *schema.Profile, m *engine.Model, gemma bool) error {
	var ids struct {
		Image int32  `json:"image_token_id"`
		Video int32  `json:"video_token_id"`
		Begin *int32 `json:"boi_token_id"`
		End   *int32 `json:"eoi_token_id"`
		Start *int32 `json:"vision_start_token_id"`
		Stop  *int32 `json:"vision_end_token_id"`
	}
	err := json.Unmarshal(m.Checkpoint.Config().Raw, &ids)
	missing := func(name string) error { return fmt.Errorf("model %s: config.json has no %s", p.Model.Source, name) }
	switch {
	case err != nil || ids.Image == 0:
		return missing("image_token_id")
	case c.Video != nil && ids.Video == 0:
		return missing("video_token_id")
	case gemma && (ids.Begin == nil || ids.End == nil):
		return missing("boi_token_id or no eoi_token_id")
	case gemma: // its template writes the item's token alone
		around := load.Tokens{Before: []int32{*ids.Begin}, After: []int32{*ids.End}}
		c.Tokens, c.VideoTokens = around, around
		c.Tokens.Text, c.VideoTokens.Text = "<|image|>", "<|video|>"
	case c.Video != nil && (ids.Start == nil || ids.Stop == nil):
		return missing("vision_start_token_id or no vision_end_token_id")
	default:
		c.Tokens.Text, c.VideoTokens.Text = "<|vision_start|><|image_pad|><|vision_end|>", "<|vision_start|><|video_pad|><|vision_end|>"
		if c.Video != nil {
			c.VideoTokens.Before, c.VideoTokens.After = []int32{*ids.Start}, []int32{*ids.Stop}
		}
	}
	c.Tokens.Row, c.VideoTokens.Row = ids.Image, ids.Video
	return nil
}

func sizeField(budgets bool) string {
	if budgets {
		return "multimodal.image.tokens"
	}
	return "multimodal.image.maxPixels"
}

// processor reads how the model in a folder prepares images and videos, with the profile's sizes.
func processor(p *schema.Profile, folder string) (*vision.Processor, error) {
	var files vision.Files
	for name, to := range map[string]*[]byte{
		"processor_config.json": &files.Processor, "preprocessor_config.json": &files.Image, "video_preprocessor_config.json": &files.Video,
	} {
		b, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("model %s: %w", p.Model.Source, err)
		}
		*to = b
	}
	if p.Multimodal.Limits.Video == 0 {
		files.Video = nil // what is wrong with it does not matter
	}
	out, err := vision.Read(files)
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", p.Model.Source, err)
	}
	if s := p.Multimodal.Image; s != nil {
		if out.Image, err = out.Image.With(sizes(map[string]int{"max_soft_tokens": s.Tokens, "min_pixels": s.MinPixels, "max_pixels": s.MaxPixels})); err != nil {
			return nil, p.Reject("multimodal.image", "%v", err)
		}
	}
	if s := p.Multimodal.Video; s != nil && out.Video != nil {
		if out.Video, err = out.Video.With(sizes(map[string]int{"min_pixels": s.MinPixels, "max_pixels": s.MaxPixels})); err != nil {
			return nil, p.Reject("multimodal.video", "%v", err)
		}
	}
	return out, nil
}

// sizes returns options of a processor; 0: absent.
func sizes(options map[string]int) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	for name, n := range options {
		if n > 0 {
			out[name] = json.RawMessage(fmt.Sprint(n))
		}
	}
	return out
}
