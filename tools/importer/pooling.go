package importer

import "strings"

// task converts --task, vLLM's older name for the purpose of a model.
func task(d *draft, s setting) {
	switch s.value() {
	case "auto", "generate":
	case "embed", "embedding":
		d.set("model.convert", quote("embed"), s)
	case "classify", "score":
		d.set("model.convert", quote("classify"), s)
	default:
		d.refuseTask(s)
	}
}

func runner(d *draft, s setting) {
	switch v := s.value(); v {
	case "auto", "generate":
	case "pooling":
		d.set("model.runner", quote(v), s)
	default:
		d.refuseTask(s)
	}
}

func convert(d *draft, s setting) {
	switch v := s.value(); v {
	case "auto", "none":
	case "embed", "classify":
		d.set("model.convert", quote(v), s)
	default:
		d.refuseTask(s)
	}
}

// refuseTask refuses a task that vapp does not serve.
func (d *draft) refuseTask(s setting) {
	d.problem(Refused, s.at, "", "%s %s: vapp generates, embeds, classifies and scores text; it gives no rewards of steps and no transcriptions", s.given, short(s.value()))
}

// poolerConfig converts the pooling options that a profile has.
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
			d.note(d.sourceText(one), no+"pooling says the type, normalize and activation, and nothing more")
		}
	}
}
