package vision

import (
	"encoding/json"
	"os"
	"reflect"
	"testing"
)

// TestPublishedProcessors reads the published processor files, and what transformers makes of them:
// both are the same rules, those that the other tests of this package have.
func TestPublishedProcessors(t *testing.T) {
	b, err := os.ReadFile("testdata/processors.json")
	if err != nil {
		t.Fatal(err)
	}
	var recorded struct {
		Published map[string]map[string]json.RawMessage
		Loaded    map[string]json.RawMessage
	}
	if err := json.Unmarshal(b, &recorded); err != nil {
		t.Fatal(err)
	}
	for name, written := range processors(t) {
		f := recorded.Published[name]
		p, err := Read(Files{Processor: f["processor_config.json"], Image: f["preprocessor_config.json"], Video: f["video_preprocessor_config.json"]})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		loaded, err := Read(Files{Image: recorded.Loaded[name]})
		if err != nil {
			t.Fatalf("%s, as transformers has it: %v", name, err)
		}
		for what, rule := range map[string]Rule{"published": p.Image, "transformers'": loaded.Image} {
			if rule.Layout() != written.Image.Layout() || rule.Most() != written.Image.Most() {
				t.Errorf("%s, %s: %+v with at most %d tokens; want %+v and %d", name, what, rule.Layout(), rule.Most(), written.Image.Layout(), written.Image.Most())
			}
			for _, size := range [][2]int{{1, 1}, {640, 480}, {4000, 3000}, {9000, 100}} {
				got, err := rule.Size(size[0], size[1], 0)
				want, refused := written.Image.Size(size[0], size[1], 0)
				if got != want || (err == nil) != (refused == nil) {
					t.Errorf("%s, %s: %v is %+v, %v; want %+v, %v", name, what, size, got, err, want, refused)
				}
			}
		}
		if !reflect.DeepEqual(p.Video.Sample(100, 24), written.Video.Sample(100, 24)) || p.Video.Layout() != written.Video.Layout() {
			t.Errorf("%s: the video's rule is another one", name)
		}
	}
}
