package appliance

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"vapp.dev/appliance/chat"
	"vapp.dev/appliance/media/fetch"
	"vapp.dev/appliance/media/load"
	"vapp.dev/appliance/plan"
	"vapp.dev/engine"
	"vapp.dev/engine/vision"
	"vapp.dev/schema"
)

// newVision returns what loads the images of requests, nil if the profile allows none. It reads the
// files of the model's processor.
func newVision(p *schema.Profile, m *engine.Model) (chat.Vision, error) {
	shape, most := plan.Images(p, m)
	if most == 0 {
		return nil, nil
	}
	rule, err := checkedRule(p, m)
	if err != nil {
		return nil, err
	}
	var ids struct {
		Image int32  `json:"image_token_id"`
		Begin *int32 `json:"boi_token_id"`
		End   *int32 `json:"eoi_token_id"`
	}
	if err := json.Unmarshal(m.Checkpoint.Config().Raw, &ids); err != nil || ids.Image == 0 {
		return nil, fmt.Errorf("model %s: config.json has no image_token_id", p.Model.Source)
	}
	tokens := load.Tokens{Text: "<|vision_start|><|image_pad|><|vision_end|>", Image: ids.Image}
	if shape.Budgets { // Gemma 4: its template writes the image's token alone
		if ids.Begin == nil || ids.End == nil {
			return nil, fmt.Errorf("model %s: config.json has no boi_token_id or no eoi_token_id", p.Model.Source)
		}
		tokens.Text, tokens.Before, tokens.After = "<|image|>", []int32{*ids.Begin}, []int32{*ids.End}
	}
	a := p.Multimodal
	policy := fetch.Policy{AllowedDomains: a.AllowedDomains, Redirects: a.Redirects, MaxBytes: int64(a.MaxFetchBytes)}
	if a.AllowedPath != "" {
		policy.AllowedPath = p.Path(a.AllowedPath)
	}
	l, err := load.New(load.Config{
		Rule: rule, Tokens: tokens, Limits: map[string]int{"image": a.Limits.Image}, MaxTokens: most,
		Policy: policy, Timeout: time.Duration(a.FetchTimeout.Image), Pixels: a.MaxSourcePixels,
		Memory: int64(a.LoadMemory), Cache: int64(a.Cache), TrustKwargs: a.TrustRequestKwargs,
	})
	if err != nil {
		field := "multimodal.allowedDomains"
		if a.AllowedPath != "" {
			field = "multimodal.allowedPath"
		}
		return nil, p.Reject(field, "%v", err)
	}
	return l, nil
}

func sizeField(budgets bool) string {
	if budgets {
		return "multimodal.image.tokens"
	}
	return "multimodal.image.maxPixels"
}

// imageRule reads how the model in a folder prepares images, with the profile's sizes.
func imageRule(p *schema.Profile, folder string) (vision.Rule, error) {
	var files vision.Files
	for name, to := range map[string]*[]byte{"processor_config.json": &files.Processor, "preprocessor_config.json": &files.Image} {
		b, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("model %s: %w", p.Model.Source, err)
		}
		*to = b
	}
	processor, err := vision.Read(files)
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", p.Model.Source, err)
	}
	sizes := map[string]json.RawMessage{}
	if s := p.Multimodal.Image; s != nil {
		for name, n := range map[string]int{"max_soft_tokens": s.Tokens, "min_pixels": s.MinPixels, "max_pixels": s.MaxPixels} {
			if n > 0 {
				sizes[name] = json.RawMessage(fmt.Sprint(n))
			}
		}
	}
	rule, err := processor.Image.With(sizes)
	if err != nil {
		return nil, p.Reject("multimodal.image", "%v", err)
	}
	return rule, nil
}
