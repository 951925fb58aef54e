package appliance

import (
	"context"
	"errors"

	"vapp.dev/appliance/plan"
	"vapp.dev/engine"
	"vapp.dev/engine/backend"
)

// logCache logs one event of cpu.packedCache.
func (a *Appliance) logCache(e engine.CacheEvent) {
	switch {
	case e.Loaded:
		a.log.Info("packed weights loaded", "file", e.Path, "verified_in", round(e.Took).String())
	case errors.Is(e.Err, context.Canceled):
		a.log.Info("packed weights not kept: the server ended first", "file", e.Path)
	case errors.Is(e.Err, backend.ErrCacheTaken):
		a.log.Info("packed weights not kept: another process writes the same", "file", e.Path)
	case e.Err != nil:
		a.log.Warn("packed weights not kept; the server runs on without", "error", e.Err)
	case e.Written:
		a.log.Info("packed weights written", "file", e.Path, "after", round(e.Took).String())
		if names, size := cacheFiles(e.Removed); names != "" {
			a.log.Info("removed packed weights that no start would load: of another checkpoint or version", "files", names, "size", size)
		}
		if names, size := cacheFiles(e.Others); names != "" {
			a.log.Info("there are packed weights for other profiles or variants too; remove those that nothing uses", "files", names, "size", size)
		}
	default:
		a.log.Info("weights packed: "+e.Why, "file", e.Path)
	}
}

// atCacheField returns an error of the packed cache as an error of the field
// cpu.packedCache.
func (p *Prepared) atCacheField(err error) error {
	if why := (*backend.CacheError)(nil); errors.As(err, &why) {
		return p.Profile.Reject("cpu.packedCache", "%v", why)
	}
	return err
}

// cacheFiles returns the names of files and their total size.
func cacheFiles(files []backend.CacheFile) (names, size string) {
	var n int64
	for i, f := range files {
		if i > 0 {
			names += " "
		}
		names, n = names+f.Path, n+f.Bytes
	}
	return names, plan.Size(n)
}
