package importer

import "strings"

// task carries vLLM's older word for what a model is for.
func task(d *draft, s setting) {
	switch s.value() {
	case "auto", "generate":
	case "embed", "embedding":
		d.set("model.convert", quote("embed"), s)
	case "classify", "score":
		d.set("model.convert", quote("classify"), s)
	default:
		d.unserved(s)
	}
}

func runner(d *draft, s setting) {
	switch v := s.value(); v {
	case "auto", "generate":
	case "pooling":
		d.set("model.runner", quote(v), s)
	default:
		d.unserved(s)
	}
}

func convert(d *draft, s setting) {
	switch v := s.value(); v {
	case "auto", "none":
	case "embed", "classify":
		d.set("model.convert", quote(v), s)
	default:
		d.unserved(s)
	}
}

// unserved refuses what no server of vapp's does.
func (d *draft) unserved(s setting) {
	d.problem(Refused, s.at, "", "%s %s: vapp generates, embeds, classifies and scores text; it gives no rewards of steps and no transcriptions", s.given, short(s.value()))
}

// poolerConfig carries what a profile says of pooling.
func poolerConfig(d *draft, s setting) {
	if !d.wantObject(s) {
		return
	}
	for _, key := range sortedKeys(s.keys) {
		v := s.keys[key]
		one := s.entry(key, compact(v))
		on, isFlag := v.(bool)
		text, isText := v.(string)
		switch {
		case v == nil:
		case key == "normalize" && isFlag:
			d.set("pooling.normalize", compact(on), one)
		case (key == "pooling_type" || key == "seq_pooling_type") && isText && strings.Contains(" LAST MEAN CLS ALL ", " "+strings.ToUpper(text)+" "):
			d.set("pooling.type", quote(strings.ToUpper(text)), one)
		default:
			d.note(d.written(one), no+"pooling says the type, normalize and activation, and nothing more")
		}
	}
}
