package importer

import (
	"slices"
	"strconv"
	"strings"
)

// mediaKinds are the kinds of media in a request.
const mediaKinds = "image video audio"

// Reasons of keys of media options without counterpart.
const (
	noImageKey = no + "multimodal.image has tokens, minPixels and maxPixels"
	noVideoKey = no + "multimodal.video has frames, minPixels and maxPixels"
	noSizeKey  = no + "multimodal.limits has numbers of items alone"
)

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
					d.note(one.given+"."+k+" "+short(compact(m[k])), noSizeKey)
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
	if s.on {
		d.fields["?languageOnly"] = field{by: s}
		d.notef(s, "vapp loads no vision tower where multimodal is absent")
	}
}

// processorKwargs converts the sizes in --mm-processor-kwargs.
func processorKwargs(d *draft, s setting) {
	if d.wantObject(s) {
		d.imageSizes(s, "", s.keys)
	}
}

// imageSizes converts keys of an image or video processor; prefix is their place in the value of s. Keys
// outside of images_kwargs and videos_kwargs are of both.
func (d *draft) imageSizes(s setting, prefix string, keys map[string]any) {
	ofImages, ofVideos := strings.HasPrefix(prefix, "images_kwargs."), strings.HasPrefix(prefix, "videos_kwargs.")
	bound := func(name string, one setting) {
		if !ofVideos {
			d.pixels("multimodal.image."+name, one)
		}
		if !ofImages {
			d.pixels("multimodal.video."+name, one)
		}
	}
	for _, key := range sortedKeys(keys) {
		v := keys[key]
		one := s.entry(prefix+key, compact(v))
		inner, object := v.(map[string]any)
		switch name := prefix + key; {
		case v == nil:
		case object && (name == "images_kwargs" || name == "videos_kwargs" || key == "size"):
			d.imageSizes(s, name+".", inner)
		case key == "max_soft_tokens" && !ofVideos:
			if budgets := []string{"70", "140", "280", "560", "1120"}; slices.Contains(budgets, one.value()) {
				d.set("multimodal.image.tokens", one.value(), one)
			} else {
				d.invalid(one, strings.Join(budgets, ", "))
			}
		case key == "min_pixels" || strings.HasSuffix(name, "size.shortest_edge"):
			bound("minPixels", one)
		case key == "max_pixels" || strings.HasSuffix(name, "size.longest_edge"):
			bound("maxPixels", one)
		case ofVideos:
			d.note(d.sourceText(one), noVideoKey)
		default:
			d.note(d.sourceText(one), noImageKey)
		}
	}
}

// pixels sets a bound of an image. The processors that have it count pixels, also under the names
// shortest_edge and longest_edge.
func (d *draft) pixels(path string, s setting) {
	if n, err := strconv.ParseInt(s.value(), 10, 64); err == nil && n > 0 {
		d.set(path, strconv.FormatInt(n, 10), s)
	} else {
		d.invalid(s, "a number of pixels")
	}
}

// mediaKwargs converts the number of frames in --media-io-kwargs.
func mediaKwargs(d *draft, s setting) {
	if !d.wantObject(s) {
		return
	}
	for _, kind := range sortedKeys(s.keys) {
		keys, ok := s.keys[kind].(map[string]any)
		if !ok {
			d.invalid(s.entry(kind, compact(s.keys[kind])), `a JSON object, such as {"num_frames": 32}`)
			continue
		}
		for _, key := range sortedKeys(keys) {
			one := s.entry(kind+"."+key, compact(keys[key]))
			why := map[string]string{"image": noImageKey, "video": noVideoKey}[kind]
			n, err := strconv.Atoi(one.value())
			switch {
			case keys[key] == nil:
			case kind == "video" && key == "num_frames" && err != nil:
				d.invalid(one, "a number of frames")
			case kind == "video" && key == "num_frames" && n >= 1 && n <= 768:
				d.set("multimodal.video.frames", strconv.Itoa(n), one)
			case kind == "video" && key == "num_frames":
				d.note(d.sourceText(one), no+"multimodal.video.frames is 1 to 768")
			case why == "":
				d.note(d.sourceText(one), no+"multimodal has no settings of this kind of media")
			default:
				d.note(d.sourceText(one), why)
			}
		}
	}
}

// noProcessorCache converts --disable-mm-preprocessor-cache of older releases.
func noProcessorCache(d *draft, s setting) {
	if s.on {
		d.set("multimodal.cache", "0", s)
	}
}

// mediaPath converts --allowed-local-media-path; empty is vLLM's word for none.
func mediaPath(d *draft, s setting) {
	if s.value() != "" {
		d.set("multimodal.allowedPath", quote(s.value()), s, pathRemark(s.value())...)
	}
}

// mediaVariable returns the conversion of a variable that is a whole number of at least 1.
// Where vLLM takes 0 it means without bound, which vapp does not offer.
func mediaVariable(path string, text func(n int64) string) func(*draft, variable, setting) {
	return func(d *draft, v variable, s setting) {
		n, err := strconv.ParseInt(s.value(), 10, 32)
		switch {
		case err != nil || n < 0:
			d.invalid(s, "a whole number")
		case n == 0:
			d.note(variableText(v), no+path+" has a value above 0")
		default:
			d.set(path, text(n), s)
		}
	}
}

func inSeconds(n int64) string   { return quote(strconv.FormatInt(n, 10) + "s") }
func inMebibytes(n int64) string { return size(n << 20) }
func plainNumber(n int64) string { return strconv.FormatInt(n, 10) }

// redirectsVariable converts VLLM_MEDIA_URL_ALLOW_REDIRECTS, a number.
func redirectsVariable(d *draft, _ variable, s setting) {
	if n, err := strconv.Atoi(s.value()); err == nil {
		d.set("multimodal.redirects", strconv.FormatBool(n != 0), s)
	} else {
		d.invalid(s, "0, 1")
	}
}

// settleMedia removes the settings of media that are not let in, and says where vapp's default
// differs: vLLM lets 999 items of each kind in, from every host.
func (d *draft) settleMedia() {
	_, off := d.fields["?languageOnly"]
	delete(d.fields, "?languageOnly")
	given, limited, let := false, false, false
	videos, limitsVideos := d.fields["multimodal.limits.video"]
	noVideos := !limitsVideos || videos.cue == "0"
	for path, f := range d.fields {
		if !strings.HasPrefix(path, "multimodal.") {
			continue
		}
		if off || noVideos && strings.HasPrefix(path, "multimodal.video.m") { // sizes, also those of images
			delete(d.fields, path)
			continue
		}
		given = true
		if strings.HasPrefix(path, "multimodal.limits.") {
			limited, let = true, let || f.cue != "0"
		}
	}
	_, domains := d.fields["multimodal.allowedDomains"]
	switch {
	case given && !limited:
		d.note("--limit-mm-per-prompt", "not given: vLLM then lets 999 images and videos into a request, vapp none; write the numbers into multimodal.limits")
	case let && !domains:
		d.note("--allowed-media-domains", "not given: vLLM then fetches media from every host, vapp from none; write the hosts into multimodal.allowedDomains")
	}
}
