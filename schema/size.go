package schema

import (
	"encoding/json"
	"fmt"
	"math/big"
	"strings"
	"time"
)

// Bytes is a number of bytes, in a profile an int or a string such as "20GiB".
type Bytes int64

// Count is a number of tokens or threads, or Auto, in a profile an int, a string such as
// "256K", or "auto".
type Count int64

// Auto is a Count that the planner chooses.
const Auto Count = -1

// Duration is a time, in a profile a string such as "30s".
type Duration time.Duration

// SizeError is the error for an invalid size or time. Allowed describes valid ones.
type SizeError struct {
	Text, Reason, Allowed string
}

func (e *SizeError) Error() string {
	return fmt.Sprintf("%q: %s; allowed: %s", e.Text, e.Reason, e.Allowed)
}

const (
	bytesAllowed = `an int or a number with B, KiB, MiB, GiB, TiB (1024-fold), kB, MB, GB, TB (1000-fold), K, M, G, T (1024-fold) or k, m, g, t (1000-fold)`
	countAllowed = `an int, a number with K, M, G (1024-fold) or k, m, g (1000-fold), or "auto"`
)

// units maps suffixes to factors. As in vLLM, a single capital letter is a power of 1024,
// a small one a power of 1000.
var units = map[string]int64{
	"": 1, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12,
	"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40,
	"B": 1, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
	"kiB": 1 << 10, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
}

// ParseBytes parses a size in the notation of #Size: "20GiB", "20GB", "512K", "4096".
// The error is a *SizeError.
func ParseBytes(s string) (Bytes, error) {
	n, reason := quantity(s, len("TiB"))
	if reason != "" {
		return 0, &SizeError{s, reason, bytesAllowed}
	}
	return Bytes(n), nil
}

// ParseCount parses a number in the notation of #Tokens: "256K" is 262144, "256k" is
// 256000, "auto" is Auto. The error is a *SizeError.
func ParseCount(s string) (Count, error) {
	if s == "auto" {
		return Auto, nil
	}
	n, reason := quantity(s, 1)
	if reason != "" {
		return 0, &SizeError{s, reason, countAllowed}
	}
	return Count(n), nil
}

// Time returns d as a time.Duration.
func (d Duration) Time() time.Duration { return time.Duration(d) }

// ParseDuration parses a time in the notation of #Duration. The error is a *SizeError.
func ParseDuration(s string) (Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, &SizeError{s, "not a time", `parts of h, m, s, ms, such as "1m30s"`}
	}
	return Duration(d), nil
}

// quantity parses DIGITS[.DIGITS][SUFFIX] without rounding; the reason is "" on success.
func quantity(s string, longestSuffix int) (n int64, reason string) {
	if len(s) > 32 {
		return 0, "too long for a size"
	}
	end := strings.LastIndexAny(s, "0123456789") + 1
	factor, known := units[s[end:]]
	switch {
	case end == 0 || strings.Trim(s[:end], "0123456789.") != "" || s[0] == '.':
		return 0, "not a size"
	case !known || len(s)-end > longestSuffix:
		return 0, fmt.Sprintf("unknown unit %q", s[end:])
	}
	value, ok := new(big.Rat).SetString(s[:end])
	if !ok {
		return 0, "not a size"
	}
	value.Mul(value, new(big.Rat).SetInt64(factor))
	switch {
	case !value.IsInt():
		return 0, "not a whole number"
	case !value.Num().IsInt64():
		return 0, "too large"
	}
	return value.Num().Int64(), ""
}

// String returns b as the shortest text with a unit that divides it: "20GiB", "1GB", "1001B". Units
// of powers of 1024 come first.
func (b Bytes) String() string {
	shortest := fmt.Sprintf("%dB", int64(b))
	for _, u := range []string{"TiB", "GiB", "MiB", "KiB", "TB", "GB", "MB", "KB"} {
		if f := Bytes(units[u]); b != 0 && b%f == 0 {
			if text := fmt.Sprintf("%d%s", b/f, u); len(text) < len(shortest) {
				shortest = text
			}
		}
	}
	return shortest
}

// UnmarshalJSON accepts an int or a string for ParseBytes.
func (b *Bytes) UnmarshalJSON(text []byte) error {
	if len(text) > 0 && text[0] != '"' {
		return json.Unmarshal(text, (*int64)(b))
	}
	return fromString(text, b, ParseBytes)
}

// String returns the number, or auto.
func (c Count) String() string {
	if c == Auto {
		return "auto"
	}
	return fmt.Sprint(int64(c))
}

// MarshalJSON writes a number, or "auto".
func (c Count) MarshalJSON() ([]byte, error) {
	if c == Auto {
		return []byte(`"auto"`), nil
	}
	return json.Marshal(int64(c))
}

// UnmarshalJSON accepts an int or a string for ParseCount.
func (c *Count) UnmarshalJSON(text []byte) error {
	if len(text) > 0 && text[0] != '"' {
		return json.Unmarshal(text, (*int64)(c))
	}
	return fromString(text, c, ParseCount)
}

// String returns the time in the form of time.Duration: "1m30s".
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalJSON writes String.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

// UnmarshalJSON accepts a string for ParseDuration.
func (d *Duration) UnmarshalJSON(text []byte) error { return fromString(text, d, ParseDuration) }

// Latency is a bound of a time at a load of sequences of a length in tokens; in a profile a string
// such as "<40ms @ 16x2K".
type Latency struct {
	Below     Duration
	Sequences int
	Tokens    int
}

const latencyAllowed = `"<TIME @ LENGTH" or "<TIME @ SEQUENCESxLENGTH", such as "<2s @ 4K" or "<40ms @ 16x2K"`

// The largest load of a Latency.
const mostSequences, mostTokens = 1 << 16, 1 << 30

// ParseLatency parses a bound in the notation of #Latency. The error is a *SizeError.
func ParseLatency(s string) (Latency, error) {
	refuse := func(reason string, args ...any) (Latency, error) {
		return Latency{}, &SizeError{s, fmt.Sprintf(reason, args...), latencyAllowed}
	}
	bound, load, both := strings.Cut(s, "@")
	bound, less := strings.CutPrefix(strings.TrimSpace(bound), "<")
	if len(s) > 64 || !both || !less {
		return refuse("not a bound at a load")
	}
	bound, load = strings.TrimSpace(bound), strings.TrimSpace(load)
	d, err := ParseDuration(bound)
	if err != nil || d <= 0 || strings.Trim(bound, "0123456789.ms") != "" {
		return refuse("%q is no time in ms, s or m", bound)
	}
	out := Latency{Below: d, Sequences: 1}
	length := load
	if n, of, several := strings.Cut(load, "x"); several {
		if _, err := fmt.Sscanf(n+" ", "%d ", &out.Sequences); err != nil || fmt.Sprint(out.Sequences) != n || out.Sequences < 1 || out.Sequences > mostSequences {
			return refuse("%q is no number of sequences", n)
		}
		length = of
	}
	tokens, err := ParseCount(length)
	if err != nil || tokens < 1 || tokens > mostTokens {
		return refuse("%q is no length in tokens", length)
	}
	out.Tokens = int(tokens)
	return out, nil
}

// String returns l in the notation of #Latency.
func (l Latency) String() string {
	load := fmt.Sprint(l.Tokens)
	if l.Tokens%1024 == 0 {
		load = fmt.Sprintf("%dK", l.Tokens/1024)
	}
	if l.Sequences > 1 {
		load = fmt.Sprintf("%dx%s", l.Sequences, load)
	}
	unit, name := time.Second, "s"
	if l.Below.Time() < unit {
		unit, name = time.Millisecond, "ms"
	}
	whole, part := l.Below.Time()/unit, l.Below.Time()%unit*(time.Second/unit)
	below := strings.TrimRight(strings.TrimRight(fmt.Sprintf("%d.%09d", whole, part), "0"), ".")
	return fmt.Sprintf("<%s%s @ %s", below, name, load)
}

// MarshalJSON writes String.
func (l Latency) MarshalJSON() ([]byte, error) { return json.Marshal(l.String()) }

// UnmarshalJSON accepts a string for ParseLatency.
func (l *Latency) UnmarshalJSON(text []byte) error { return fromString(text, l, ParseLatency) }

func fromString[T any](text []byte, into *T, parse func(string) (T, error)) error {
	var s string
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	v, err := parse(s)
	if err == nil {
		*into = v
	}
	return err
}
