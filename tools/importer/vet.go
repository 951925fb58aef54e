package importer

import (
	"errors"
	"strings"

	"vapp.dev/schema"
)

// vet checks the profile by the schema, which defines bounds and allowed words. It reports each
// error at the flag that set the value.
func (d *draft) vet(text []byte) {
	_, err := schema.Parse("import.cue", text)
	var e *schema.Error
	if !errors.As(err, &e) {
		if err != nil {
			d.problem(Invalid, Place{}, "", "the profile cannot be read: %s", oneLine(err.Error()))
		}
		return
	}
	for _, p := range e.List {
		s, ok := d.settingOf(p.Path)
		if !ok {
			d.problem(Invalid, Place{}, "", "the profile is not valid: %s", p.String())
			continue
		}
		remedy := ""
		if p.Allowed != "" {
			remedy = "allowed: " + p.Allowed
		}
		message := p.Message
		if s.flag != nil && strings.HasPrefix(d.maskedValue(s), "(") {
			message = "invalid value"
		}
		d.problem(Invalid, s.at, remedy, "%s: %s (%s)", s.given, message, p.Path)
	}
}

// settingOf returns the setting that set the field at path, or a field above it.
func (d *draft) settingOf(path string) (setting, bool) {
	for path != "" {
		if f, ok := d.fields[path]; ok {
			return f.by, true
		}
		at := strings.LastIndexAny(path, ".[")
		if at < 0 {
			break
		}
		path = path[:at]
	}
	return setting{}, false
}
