package models

import (
	"embed"
	"path"
	"strings"

	"vapp.dev/engine/checkpoint"
)

// The configs of models that plan without their files, as published (see
// docs/dependencies.md for their sources and licences).
//
//go:embed catalogue/*.json
var catalogue embed.FS

// Catalogued returns the config of a model known by name: the last element of
// a hub name, whatever its case, with or without "-instruct".
func Catalogued(name string) (checkpoint.Config, bool, error) {
	key := strings.TrimSuffix(strings.ToLower(path.Base(name)), "-instruct")
	data, err := catalogue.ReadFile("catalogue/" + key + ".json")
	if err != nil {
		return checkpoint.Config{}, false, nil
	}
	c, err := checkpoint.ParseConfig(name+" (embedded config)", data)
	return c, true, err
}

// CatalogueNames lists what Catalogued knows.
func CatalogueNames() []string {
	var out []string
	entries, _ := catalogue.ReadDir("catalogue")
	for _, e := range entries {
		out = append(out, strings.TrimSuffix(e.Name(), ".json"))
	}
	return out
}
