package appliance

import (
	"path/filepath"
	"slices"

	"vapp.dev/appliance/api"
	"vapp.dev/schema"
)

// servedNames returns the names that requests may use. The default is the model's source.
// If it is an absolute path, its last element is the first name, which metrics show:
// clients without a key must not see the path.
func servedNames(p *schema.Profile) []string {
	names := p.Serve.ServedModelName
	if source := p.Model.Source; len(names) == 1 && names[0] == source && filepath.IsAbs(source) {
		return []string{filepath.Base(source), source}
	}
	return names
}

// publicNames returns the served names without the absolute path.
func publicNames(names []string, source string) []string {
	if len(names) == 2 && names[1] == source && filepath.IsAbs(source) {
		return names[:1]
	}
	return names
}

// publicReloads returns reloads without directories, for clients without a key.
func publicReloads(list []Reload) []Reload {
	out := slices.Clone(list)
	for i := range out {
		r := &out[i]
		r.Error, r.Plan, r.Changes = api.WithoutFolders(r.Error), api.WithoutFolders(r.Plan), withoutFolders(r.Changes)
		r.Pending, r.Lost = withoutFolders(r.Pending), withoutFolders(r.Lost)
	}
	return out
}

// public returns w without directories, for clients without a key.
func (w *Waiting) public() *Waiting {
	if w == nil {
		return nil
	}
	out := *w
	out.Changes, out.Plan, out.Error = withoutFolders(w.Changes), api.WithoutFolders(w.Plan), api.WithoutFolders(w.Error)
	return &out
}

func withoutFolders(texts []string) []string {
	out := slices.Clone(texts)
	for i, t := range out {
		out[i] = api.WithoutFolders(t)
	}
	return out
}
