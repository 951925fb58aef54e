package appliance

import (
	"strings"
	"testing"

	"vapp.dev/schema"
)

// TestCheckMedia: sizes of images are compared with the model's own processor where its files are.
func TestCheckMedia(t *testing.T) {
	larger := strings.Replace(gemmaProcessor, "70", "280", 1)
	for _, c := range []struct{ processor, fields, want string }{
		{gemmaProcessor, `multimodal: {limits: image: 2, image: tokens: 70}`, ""},
		{larger, `multimodal: {limits: image: 2, image: tokens: 70}`, ""}, // the profile's come before the processor's
		{larger, `multimodal: limits: image: 2`, "multimodal.limits.image: the model's processor makes images of up to 280 tokens, and the plan has "},
		{`{"image_processor_type": "Other"}`, `multimodal: {limits: image: 2, image: tokens: 70}`, "image_processor_type"},
		{gemmaProcessor, `multimodal: {limits: image: 2, image: tokens: 70, allowedDomains: ["localhost"]}`, `multimodal.allowedDomains: "localhost" is an address that is never connected to`},
		{gemmaProcessor, `multimodal: limits: audio: 1`, "multimodal.limits.audio: 1 clips a request"},
		{`{`, `multimodal: limits: image: 0`, ""},
	} {
		dir := seeing(t, "tiny-gemma4-tower", c.processor, "", nil)
		p, err := schema.Parse("eyes.cue", []byte("import \"vapp.dev/schema\"\nschema.#Profile & {name: \"eyes\", model: source: \""+dir+"\", maxModelLen: 512\n"+c.fields+"}\n"))
		if err != nil {
			t.Fatal(err)
		}
		err = CheckMedia(p, Machine{})
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.fields, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n")):
			t.Errorf("%s: %v, want %q in one line", c.fields, err, c.want)
		case strings.HasPrefix(c.want, "multimodal") && !strings.HasPrefix(err.Error(), "eyes.cue:3:"):
			t.Errorf("%s: %v has no place", c.fields, err)
		}
	}
}
