package lock

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Kind is the part of a lock that differs.
type Kind string

// The kinds. Absent is a file of the lock that is missing on this machine: a difference for `vapp
// up --locked`, but not for `vapp lock --check` on a machine without weights.
const (
	Build   Kind = "vapp"
	Field   Kind = "profile"
	Figures Kind = "plan"
	Target  Kind = "machine"
	Weights Kind = "checkpoint"
	Absent  Kind = "absent"
)

// Drift is one difference between a lock and the present state. Locked and Now are "" where that
// side has no value.
type Drift struct {
	Kind        Kind
	Path        string
	Locked, Now string
}

// String formats the difference as one line.
func (d Drift) String() string {
	kind := d.Kind
	if kind == Absent {
		kind = Weights
	}
	text := fmt.Sprintf("%s: %s: locked %s, now %s", kind, d.Path, orNothing(d.Locked), orNothing(d.Now))
	if d.Path == "" {
		text = fmt.Sprintf("%s: locked %s, now %s", kind, orNothing(d.Locked), orNothing(d.Now))
	}
	return oneLine(text)
}

func orNothing(s string) string {
	if s == "" {
		return "nothing"
	}
	return clip(s)
}

// Compare returns the differences, in the order version, profile, plan, machine, checkpoint. The
// machine is compared only where the plan differs, because it may be the reason.
func (l *Lock) Compare(now *Lock) []Drift {
	var list []Drift
	if l.Vapp != now.Vapp {
		list = append(list, Drift{Build, "", l.Vapp, now.Vapp})
	}
	if l.Profile.SHA256 != now.Profile.SHA256 {
		fields := trees(Field, l.Profile.Resolved, now.Profile.Resolved)
		if len(fields) == 0 {
			fields = []Drift{{Field, "serve.apiKeys", "another key in clear text", "this one"}}
		}
		list = append(list, fields...)
	}
	if moved := trees(Figures, l.Plan, now.Plan); len(moved) > 0 {
		list = append(list, moved...)
		list = append(list, trees(Target, l.Machine.Facts, now.Machine.Facts)...)
	}
	return append(list, l.Checkpoint.compare(now.Checkpoint)...)
}

// Lacks returns what the plan of a server, now, lacks of the locked one, for a lock that was made
// for another machine than the server's: backend, options and decisions have to be equal, and the
// KV cache has to hold at least as many tokens and as many sequences of each length. Its bytes may
// differ, because a GPU reports slightly more or less memory than the catalogue has.
func (l *Lock) Lacks(now *Lock) []Drift {
	const size = "kv_cache_bytes"
	was, is := maps.Clone(l.Plan.Options), maps.Clone(now.Plan.Options)
	delete(was, size)
	delete(is, size)
	type equal struct {
		Options   map[string]any    `json:"options"`
		Decisions map[string]string `json:"decisions"`
	}
	var list []Drift
	if l.Plan.Backend != now.Plan.Backend { // then all else differs too
		list = []Drift{{Target, "backend", l.Plan.Backend, now.Plan.Backend}}
		return append(list, l.Machine.compare(now.Machine)...)
	}
	list = trees(Target, equal{was, l.Plan.Decisions}, equal{is, now.Plan.Decisions})
	least := func(path string, a, b int64) {
		if b < a {
			list = append(list, Drift{Target, path, fmt.Sprint(a), fmt.Sprint(b)})
		}
	}
	least("kv_tokens", l.Plan.KVTokens, now.Plan.KVTokens)
	for _, tokens := range slices.Sorted(maps.Keys(l.Plan.Sequences)) {
		least("sequences."+tokens, int64(l.Plan.Sequences[tokens]), int64(now.Plan.Sequences[tokens]))
	}
	if len(list) > 0 {
		list = append(list, l.Machine.compare(now.Machine)...)
	}
	return list
}

// compare returns the differences in the facts that name a machine.
func (m Machine) compare(now Machine) []Drift {
	named := func(facts map[string]any) map[string]any {
		out := map[string]any{}
		for _, name := range []string{"cores", "cublaslt", "device", "no_cublaslt", "total_bytes"} {
			if v, ok := facts[name]; ok {
				out[name] = v
			}
		}
		return out
	}
	return trees(Target, named(m.Facts), named(now.Facts))
}

func (c Checkpoint) compare(now Checkpoint) []Drift {
	var list []Drift
	if c.Source != now.Source {
		list = append(list, Drift{Weights, "source", c.Source, now.Source})
	}
	was, is := filesByName(c.Files), filesByName(now.Files)
	for _, name := range slices.Sorted(maps.Keys(was)) {
		a := was[name]
		b, here := is[name]
		switch {
		case !here:
			list = append(list, Drift{Absent, name, a.words(), "not here"})
		case a.Size != b.Size || a.SHA256 != b.SHA256:
			list = append(list, Drift{Weights, name, a.words(), b.words()})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(is)) {
		if _, known := was[name]; !known {
			list = append(list, Drift{Weights, name, "", is[name].words()})
		}
	}
	return list
}

func filesByName(list []File) map[string]File {
	out := map[string]File{}
	for _, f := range list {
		out[f.Name] = f
	}
	return out
}

// words returns a file's size and the first digits of its hash.
func (f File) words() string { return fmt.Sprintf("%d bytes sha256 %.12s", f.Size, f.SHA256) }

// trees compares the leaves of the JSON of two values. A list counts as one leaf.
func trees(kind Kind, locked, now any) []Drift {
	a, b := leavesOf(locked), leavesOf(now)
	paths := map[string]bool{}
	for p := range a {
		paths[p] = true
	}
	for p := range b {
		paths[p] = true
	}
	var list []Drift
	for _, p := range slices.Sorted(maps.Keys(paths)) {
		if a[p] != b[p] {
			list = append(list, Drift{kind, p, a[p], b[p]})
		}
	}
	return list
}

// leavesOf returns the text of every leaf by its path.
func leavesOf(v any) map[string]string {
	out := map[string]string{}
	var plain any
	if err := transcode(v, &plain); err != nil {
		return map[string]string{"": err.Error()}
	}
	leaves(out, "", plain)
	return out
}

func leaves(into map[string]string, path string, v any) {
	m, ok := v.(map[string]any)
	if !ok {
		text, err := json.Marshal(v)
		if err != nil {
			text = []byte(fmt.Sprint(v))
		}
		into[path] = string(text)
		return
	}
	for k, x := range m {
		at := k
		if path != "" {
			at = path + "." + k
		}
		leaves(into, at, x)
	}
}

// SplitAbsent separates the files of the lock that are not on this machine from the rest.
func SplitAbsent(list []Drift) (absent, rest []Drift) {
	for _, d := range list {
		if d.Kind == Absent {
			absent = append(absent, d)
		} else {
			rest = append(rest, d)
		}
	}
	return absent, rest
}

// DriftError is a server refused because it differs from its lock.
type DriftError struct {
	Profile string // file
	Drifts  []Drift
}

// Error returns a line for each difference.
func (e *DriftError) Error() string {
	lines := make([]string, len(e.Drifts))
	for i, d := range e.Drifts {
		lines[i] = e.Profile + ": not as locked: " + d.String()
	}
	return strings.Join(lines, "\n")
}

// clip shortens a long value.
func clip(s string) string {
	const most = 120
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}

// oneLine removes line breaks and control characters.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return ' '
		}
		return r
	}, s)
}
