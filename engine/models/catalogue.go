package models

import (
	"embed"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"vapp.dev/engine/checkpoint"
	"vapp.dev/nearest"
)

// The configs of models that can be planned without their files, as published, and index.json,
// which lists them (catalogue/SOURCES.md has their sources).
//
//go:embed catalogue/*.json
var catalogue embed.FS

// Entry is a model in the catalogue.
type Entry struct {
	Name         string   `json:"name"`    // on the hub: "meta-llama/Llama-3.2-1B-Instruct"
	Aliases      []string `json:"aliases"` // other hub names of the same config
	About        string   `json:"about"`
	Parameters   int64    `json:"parameters"`   // weights as trained, not counting the scales of quantized weights
	Quantization string   `json:"quantization"` // as published: "bf16", "fp8 128x128", "mxfp4"
	Licence      string   `json:"licence"`
	File         string   `json:"file"` // of its config in the catalogue, without .json
}

// Config parses the entry's config.
func (e Entry) Config() (checkpoint.Config, error) { return e.config(checkpoint.Edits{}) }

func (e Entry) config(edits checkpoint.Edits) (checkpoint.Config, error) {
	data, err := catalogue.ReadFile("catalogue/" + e.File + ".json")
	if err != nil {
		return checkpoint.Config{}, fmt.Errorf("catalogue of models: %s: %w", e.Name, err)
	}
	return edits.Parse(e.Name+" (embedded config)", data)
}

// Catalogue lists the entries, family by family. It parses no config.
func Catalogue() ([]Entry, error) {
	var out []Entry
	data, err := catalogue.ReadFile("catalogue/index.json")
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	if err != nil {
		return nil, fmt.Errorf("catalogue of models: %w", err)
	}
	return out, nil
}

// FindEntry returns the entry for a hub name, ignoring case. The organisation may differ or be left
// out. If no entry matches exactly, a trailing "-instruct" or "-it" is ignored too.
func FindEntry(name string) (Entry, bool, error) {
	list, err := Catalogue()
	if err != nil {
		return Entry{}, false, err
	}
	for _, same := range []func(string) string{hubName, lastName, untuned} {
		key := same(name)
		for _, e := range list {
			if slices.ContainsFunc(e.names(), func(n string) bool { return same(n) == key }) {
				return e, true, nil
			}
		}
	}
	return Entry{}, false, nil
}

func (e Entry) names() []string { return append([]string{e.Name}, e.Aliases...) }

// hubName, lastName and untuned normalize a name for comparison: hubName lowers its case, lastName
// also drops the organisation, untuned also drops the suffix of instruction tuning.
func hubName(name string) string { return strings.ToLower(name) }

func lastName(name string) string { return path.Base(hubName(name)) }

func untuned(name string) string {
	name = lastName(name)
	for _, suffix := range []string{"-instruct", "-it"} {
		if s, ok := strings.CutSuffix(name, suffix); ok {
			return s
		}
	}
	return name
}

// CatalogueConfig returns the config of the entry that FindEntry returns.
func CatalogueConfig(name string) (checkpoint.Config, bool, error) {
	return EditedConfig(name, checkpoint.Edits{})
}

// EditedConfig is CatalogueConfig with edits of the config.
func EditedConfig(name string, edits checkpoint.Edits) (checkpoint.Config, bool, error) {
	e, ok, err := FindEntry(name)
	if !ok || err != nil {
		return checkpoint.Config{}, false, err
	}
	c, err := e.config(edits)
	return c, true, err
}

// CatalogueNames lists the hub names of the catalogue, without aliases.
func CatalogueNames() []string {
	var out []string
	list, _ := Catalogue()
	for _, e := range list {
		out = append(out, e.Name)
	}
	return out
}

// Suggest returns up to three catalogue names that are similar to an unknown name, without those that
// are more than three times as far as the first.
func Suggest(name string) []string {
	names := map[string]string{}
	var keys []string
	list, _ := Catalogue()
	for _, e := range list {
		key := untuned(e.Name)
		if _, twice := names[key]; !twice {
			names[key] = e.Name
			keys = append(keys, key)
		}
	}
	var out []string
	far := func(n string) int { return nearest.Distance(nearest.Folded(name), nearest.Folded(n)) }
	for _, key := range nearest.Names(untuned(name), keys, 3) {
		if n := names[key]; len(out) == 0 || far(n) <= 3*max(1, far(out[0])) {
			out = append(out, n)
		}
	}
	return out
}
