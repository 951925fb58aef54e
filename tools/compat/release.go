package compat

import (
	"slices"
	"strconv"
	"strings"

	"vapp.dev/nearest"
)

// Release is a vLLM version whose arithmetic this package knows.
type Release string

// The releases, by age.
const (
	V07       Release = "vllm-0.7"     // v0.7.1, the V0 engine
	V2025Aug  Release = "vllm-2025-08" // the V1 engine of 1 August 2025
	V017      Release = "vllm-0.17"    // 0.17.1 development, March 2026
	V019      Release = "vllm-0.19"    // v0.19.0
	V033      Release = "vllm-0.33"    // v0.33.0, the newest on PyPI in November 2026
	V017PullA Release = "vllm-0.17-pr-a"
	V017PullB Release = "vllm-0.17-pr-b"
)

// Releases returns all releases.
func Releases() []Release { return []Release{V07, V2025Aug, V017, V019, V033, V017PullA, V017PullB} }

// Reconstructed reports whether r is a state of a pull request without available code. Its formulas
// were derived from its text and the figures that it printed.
func (r Release) Reconstructed() bool { return r == V017PullA || r == V017PullB }

// era orders releases. The states of the pull request count as the release that they start from.
func (r Release) era() int {
	switch r {
	case V07:
		return 0
	case V2025Aug:
		return 1
	case V017, V017PullA, V017PullB:
		return 2
	case V019:
		return 3
	}
	return 4
}

// atLeast reports whether r is as new as o or newer.
func (r Release) atLeast(o Release) bool { return r.era() >= o.era() }

// ParseRelease parses a release's name. For an unknown name it returns an *Error with suggestions.
func ParseRelease(s string) (Release, error) {
	if slices.Contains(Releases(), Release(s)) {
		return Release(s), nil
	}
	var known []string
	for _, r := range Releases() {
		known = append(known, string(r))
	}
	suggestion := ";"
	near := nearest.Names(s, known, 2)
	if r, ok := newestLike(s); ok {
		near = []string{string(r)}
	}
	if len(near) > 0 {
		suggestion = ": did you mean " + strings.Join(near, " or ") + "?"
	}
	return "", fault("compat", "no release %s%s known are %s", strconv.Quote(clip(s)), suggestion, strings.Join(known, ", "))
}

// newestLike returns the newest release whose name begins with s: vllm-0.33 for vllm.
func newestLike(s string) (Release, bool) {
	var found Release
	for _, r := range Releases() {
		if strings.HasPrefix(string(r), s) && !r.Reconstructed() && (found == "" || r.atLeast(found)) {
			found = r
		}
	}
	return found, found != ""
}

// clip shortens foreign text for messages.
func clip(s string) string {
	if len(s) > 60 {
		return s[:60] + "…"
	}
	return s
}
