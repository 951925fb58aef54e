package compat

import (
	"slices"
	"strconv"
	"strings"

	"vapp.dev/nearest"
)

// Release is a vLLM whose arithmetic is known.
type Release string

// The releases, in time.
const (
	V07       Release = "vllm-0.7"     // v0.7.1, the V0 engine
	V2025Aug  Release = "vllm-2025-08" // the V1 engine of 1 August 2025
	V017      Release = "vllm-0.17"    // 0.17.1 development, March 2026
	V019      Release = "vllm-0.19"    // v0.19.0
	V017PullA Release = "vllm-0.17-pr-a"
	V017PullB Release = "vllm-0.17-pr-b"
)

// Releases lists them.
func Releases() []Release { return []Release{V07, V2025Aug, V017, V019, V017PullA, V017PullB} }

// Reconstructed tells a state of a pull request whose code was not to be had:
// its formulas were found from its text and the figures it printed.
func (r Release) Reconstructed() bool { return r == V017PullA || r == V017PullB }

// era orders releases; the pull request's states count as the release they
// start from.
func (r Release) era() int {
	switch r {
	case V07:
		return 0
	case V2025Aug:
		return 1
	case V017, V017PullA, V017PullB:
		return 2
	}
	return 3
}

// atLeast reports whether r is of o's time or later.
func (r Release) atLeast(o Release) bool { return r.era() >= o.era() }

// ParseRelease reads a name; an unknown one is an *Error with the nearest.
func ParseRelease(s string) (Release, error) {
	if slices.Contains(Releases(), Release(s)) {
		return Release(s), nil
	}
	type near struct {
		name string
		far  int
	}
	var all []near
	for _, r := range Releases() {
		all = append(all, near{string(r), nearest.Distance(strings.ToLower(clip(s)), string(r))})
	}
	slices.SortStableFunc(all, func(a, b near) int { return a.far - b.far })
	var names []string
	for _, n := range all {
		if n.far <= all[0].far+1 {
			names = append(names, n.name)
		}
	}
	known := make([]string, 0, len(all))
	for _, r := range Releases() {
		known = append(known, string(r))
	}
	return "", fault("compat", "no release %s: did you mean %s? known are %s",
		strconv.Quote(clip(s)), strings.Join(names, " or "), strings.Join(known, ", "))
}

// clip bounds foreign text before it is printed.
func clip(s string) string {
	if len(s) > 60 {
		return s[:60] + "…"
	}
	return s
}
