package models

import (
	"embed"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"vapp.dev/engine/checkpoint"
	"vapp.dev/engine/nearest"
)

// The configs of models that plan without their files, as published, and
// index.json, which names them (catalogue/SOURCES.md has their sources).
//
//go:embed catalogue/*.json
var catalogue embed.FS

// Entry is a model of the catalogue.
type Entry struct {
	Name         string   `json:"name"`    // on the hub: "meta-llama/Llama-3.2-1B-Instruct"
	Aliases      []string `json:"aliases"` // other hub names of the same config
	About        string   `json:"about"`
	Parameters   int64    `json:"parameters"`   // weights as trained; scales of quantized ones are not counted
	Quantization string   `json:"quantization"` // as published: "bf16", "fp8 128x128", "mxfp4"
	Licence      string   `json:"licence"`
	File         string   `json:"file"` // of its config in the catalogue, without .json
}

// Config parses the entry's config.
func (e Entry) Config() (checkpoint.Config, error) {
	data, err := catalogue.ReadFile("catalogue/" + e.File + ".json")
	if err != nil {
		return checkpoint.Config{}, fmt.Errorf("catalogue of models: %s: %w", e.Name, err)
	}
	return checkpoint.ParseConfig(e.Name+" (embedded config)", data)
}

// Catalogue lists what is known by name, family by family. No config is parsed.
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

// FindEntry finds a model by its hub name, whatever its case; the organisation may
// be another's or left out, and where no entry has the very name, "-instruct" and
// "-it" at its end do not count.
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

// hubName is a name to compare; lastName is without the organisation, untuned also
// without the suffix of instruction tuning.
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

// CatalogueConfig returns the config of a model that FindEntry finds.
func CatalogueConfig(name string) (checkpoint.Config, bool, error) {
	e, ok, err := FindEntry(name)
	if !ok || err != nil {
		return checkpoint.Config{}, false, err
	}
	c, err := e.Config()
	return c, true, err
}

// CatalogueNames lists the hub names of the catalogue, aliases apart.
func CatalogueNames() []string {
	var out []string
	list, _ := Catalogue()
	for _, e := range list {
		out = append(out, e.Name)
	}
	return out
}

// Suggest lists up to three names of the catalogue that an unknown name was probably
// meant to be.
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
	for _, key := range nearest.Names(untuned(name), keys, 3) {
		out = append(out, names[key])
	}
	return out
}
