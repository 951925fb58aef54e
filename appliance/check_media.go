package appliance

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"vapp.dev/appliance/media/fetch"
	"vapp.dev/appliance/plan"
	"vapp.dev/engine"
	"vapp.dev/engine/vision"
	"vapp.dev/schema"
)

// CheckMedia returns why a profile's multimodal fields cannot be served, without planning: domains
// that no URL can have, a folder that is none, limits and sizes that the model does not have, and images
// that are larger than a step or a sequence. The model is only looked at if its headers are on the
// machine or in the catalogue; its processor only if its files are there.
func CheckMedia(p *schema.Profile, m Machine) error {
	if p.Multimodal == nil {
		return nil
	}
	if err := errors.Join(checkDomains(p), checkAllowedPath(p)); err != nil {
		return err
	}
	model, err := m.inspect(p)
	if err != nil {
		var placed *schema.Error
		if errors.As(err, &placed) && strings.HasPrefix(placed.List[0].Path, "multimodal") {
			return err
		}
		return nil // the model is absent, or wrong for a reason of its own: plan says so
	}
	return errors.Join(checkImages(p, model), model.Close())
}

// checkDomains refuses domains that no URL can have, and addresses that are never connected to.
func checkDomains(p *schema.Profile) error {
	const field = "multimodal.allowedDomains"
	for _, d := range p.Multimodal.AllowedDomains {
		name, err := fetch.Domain(d)
		if err != nil {
			return p.Reject(field, "%v", err)
		}
		if a, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil && fetch.Blocked(a) || name == "localhost" {
			return p.Reject(field, "%q is an address that is never connected to: loopback, private, link-local, multicast and reserved ones; name a public host", d)
		}
	}
	return nil
}

// checkAllowedPath refuses a file in place of a folder, and an absent folder that belongs to the
// profile. An absolute path may be one of the machine that serves.
func checkAllowedPath(p *schema.Profile) error {
	const field = "multimodal.allowedPath"
	given := p.Multimodal.AllowedPath
	if given == "" {
		return nil
	}
	info, err := os.Stat(p.Path(given))
	switch {
	case err == nil && !info.IsDir():
		return p.Reject(field, "%s is no folder", given)
	case errors.Is(err, fs.ErrNotExist) && strings.HasPrefix(given, "."):
		return p.Reject(field, "there is no folder %s from the profile's own on", given)
	}
	return nil
}

// checkImages checks limits and sizes against the model, and against its processor's files if they
// are there.
func checkImages(p *schema.Profile, m *engine.Model) error {
	if err := plan.CheckImages(p, m); err != nil {
		return err
	}
	shape, most := plan.Images(p, m)
	if most == 0 {
		return nil
	}
	if n := p.Scheduler.MaxNumBatchedTokens; shape.Budgets && most > n {
		return p.Reject("scheduler.maxNumBatchedTokens", "the largest image has %d tokens, which %s computes in one step, and a step has %d; raise it to at least that, or lower multimodal.image.tokens", most, m.Source.Name, n)
	}
	if n := p.MaxModelLen; shape.Budgets && n != schema.Auto && most > int(n) {
		return p.Reject("maxModelLen", "a sequence has %d tokens, and %s makes every image about %d large; raise it, or lower multimodal.image.tokens", n, m.Source.Name, most)
	}
	folder := m.Checkpoint.Path()
	if !hasProcessor(folder) {
		return nil
	}
	_, err := checkedProcessor(p, m)
	return err
}

// hasProcessor reports whether a model's folder has the files of its processor.
func hasProcessor(folder string) bool {
	for _, name := range []string{"processor_config.json", "preprocessor_config.json"} {
		if _, err := os.Stat(filepath.Join(folder, name)); err == nil {
			return true
		}
	}
	return false
}

// checkedProcessor returns how a model prepares images and videos. It refuses sizes that its processor does
// not have, and a processor whose images or frames are larger than the plan has them.
func checkedProcessor(p *schema.Profile, m *engine.Model) (*vision.Processor, error) {
	shape, most := plan.Images(p, m)
	rules, err := processor(p, m.Checkpoint.Path())
	if err != nil {
		return nil, err
	}
	if n := rules.Image.Most(); p.Multimodal.Limits.Image > 0 && n > most {
		return nil, p.Reject("multimodal.limits.image", "the model's processor makes images of up to %d tokens, and the plan has %d: set %s to at least that", n, most, sizeField(shape.Budgets))
	}
	if p.Multimodal.Limits.Video == 0 {
		return rules, nil
	}
	switch {
	case rules.Video == nil:
		return nil, p.Reject("multimodal.limits.video", "the model has no video_preprocessor_config.json, and no video_processor in processor_config.json; fetch it from where the model is published")
	case rules.Video.Most() > most:
		return nil, p.Reject("multimodal.limits.video", "the model's processor makes frames of up to %d tokens, and the plan has %d: set multimodal.video.maxPixels to at least that", rules.Video.Most(), most)
	}
	return rules, nil
}
