package plan

import (
	"path/filepath"
	"strings"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/schema"
)

// cacheItem is the name of the ledger line for the file of packed weights.
const cacheItem = "packed cache"

// cacheOf returns where cpu.packedCache stores the packed weights of the model at source. With
// auto, dummy weights are not stored: there is no directory for the file.
func cacheOf(p *schema.Profile, source string) backend.Cache {
	stem := strings.TrimSuffix(filepath.Base(source), filepath.Ext(source))
	if filepath.Ext(source) != ".gguf" {
		stem = filepath.Base(source)
	}
	switch word := p.CPU.PackedCache; {
	case word == "off", word == "auto" && p.Model.LoadFormat == "dummy":
		return backend.Cache{}
	case word != "auto":
		return backend.Cache{Dir: p.Path(word), Stem: stem, Must: true, Shared: true}
	case filepath.Ext(source) == ".gguf":
		return backend.Cache{Dir: filepath.Dir(source), Stem: stem}
	default:
		return backend.Cache{Dir: source, Stem: stem}
	}
}

// cache returns the ledger line of the file of packed weights. Once written, the file is mapped
// in place of the weights' own memory. The weights' line counts these bytes in both cases, so a
// plan does not depend on whether the file exists.
func (w resolved) cache(o engine.Options, a *engine.Account) (Item, bool) {
	l, can := a.Layout.(backend.CacheLayout)
	c := o.Backend.Cache
	if !can || c.Dir == "" {
		return Item{}, false
	}
	return Item{Name: cacheItem, Bytes: a.Reservation.Arenas[backend.Weights], Basis: Apart,
		Rule: "cpu.packedCache: " + l.CacheFile(c, a.Reservation) + ", read as the weights once it is there"}, true
}
