package plan

import (
	"path/filepath"
	"strings"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/schema"
)

// cacheItem is the ledger's line of the file of packed weights.
const cacheItem = "packed cache"

// cacheOf is where cpu.packedCache keeps packed weights of the model at source. Made-up weights have nothing
// that a file could lie beside.
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

// cache is the line of the file: page cache that is mapped in place of the weights' own
// memory once it is written. The weights' line counts these bytes either way, so that a
// plan does not depend on whether there is a file yet.
func (w resolved) cache(o engine.Options, a *engine.Account) (Item, bool) {
	l, can := a.Layout.(backend.CacheLayout)
	c := o.Backend.Cache
	if !can || c.Dir == "" {
		return Item{}, false
	}
	return Item{Name: cacheItem, Bytes: a.Reservation.Arenas[backend.Weights], Basis: Apart,
		Rule: "cpu.packedCache: " + l.CacheFile(c, a.Reservation) + ", read as the weights once it is there"}, true
}
