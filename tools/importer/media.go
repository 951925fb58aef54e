package importer

import (
	"vapp.dev/foreign"

	"strconv"
	"strings"
)

// mediaKinds are the kinds of media in a request.
const mediaKinds = "image video audio"

// mediaLimits converts the number of items per request: {"image": 2}, {"image": {"count": 2}}, or
// image=2,video=1 of older releases.
func mediaLimits(d *draft, s setting) {
	if s.keys == nil {
		s.keys = map[string]any{}
		for _, pair := range strings.Split(s.value(), ",") {
			kind, n, ok := strings.Cut(pair, "=")
			if !ok {
				d.invalid(s, `a JSON object, such as {"image": 2}`)
				return
			}
			s.keys[kind] = looseValue(n)
		}
	}
	for _, kind := range sortedKeys(s.keys) {
		v := s.keys[kind]
		one := s.entry(kind, compact(v))
		if m, ok := v.(map[string]any); ok {
			for _, k := range sortedKeys(m) {
				if k != "count" {
					d.note(one.given+"."+k+" "+short(compact(m[k])), foreign.MediaOnly)
				}
			}
			if v = m["count"]; v == nil {
				continue
			}
		}
		switch n, err := strconv.Atoi(compact(v)); {
		case !strings.Contains(" "+mediaKinds+" ", " "+kind+" "):
			d.note(d.sourceText(one), no+"multimodal.limits has image, video and audio")
		case err != nil:
			d.invalid(one, "a number of items")
		default:
			d.set("multimodal.limits."+kind, strconv.Itoa(n), one)
		}
	}
}

// languageOnly turns multimodal input off, which is the default of a profile.
func languageOnly(d *draft, s setting) {
	for _, kind := range strings.Fields(mediaKinds) {
		delete(d.fields, "multimodal.limits."+kind)
	}
	d.notef(s, "vapp loads no vision tower where multimodal is absent")
}
