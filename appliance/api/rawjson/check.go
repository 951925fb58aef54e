package rawjson

import (
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// Limits of a body. MaxDepth limits the nesting, which recursive code such as template
// engines follows. MaxValues limits strings, names, objects, arrays, true, false and
// null, which become Go values; numbers do not count.
const (
	MaxDepth  = 100
	MaxValues = 1 << 17
)

// Check returns an error for a text that is not JSON in UTF-8, or exceeds a limit.
func Check(b []byte) error {
	if err := CheckSize(b); err != nil {
		return err
	}
	if !utf8.Valid(b) {
		return fmt.Errorf("the body is not UTF-8 at byte %d", validPrefix(b))
	}
	if json.Valid(b) {
		return nil
	}
	var none struct{}
	err := json.Unmarshal(b, &none)
	if s := (*json.SyntaxError)(nil); errors.As(err, &s) {
		return fmt.Errorf("%s at byte %d", s.Error(), s.Offset)
	}
	return err
}

// validPrefix returns the number of bytes before the first one that is not UTF-8.
func validPrefix(b []byte) (at int) {
	for at < len(b) {
		r, n := utf8.DecodeRune(b[at:])
		if r == utf8.RuneError && n == 1 {
			break
		}
		at += n
	}
	return at
}

// CheckSize returns an error for a text that exceeds a limit, whether JSON or not.
func CheckSize(b []byte) error {
	if n, depth := measure(b); depth > MaxDepth {
		return fmt.Errorf("the body nests deeper than %d levels", MaxDepth)
	} else if n > MaxValues {
		return fmt.Errorf("the body holds more than %d values, numbers not counted", MaxValues)
	}
	return nil
}

// Values returns the number of values in a text.
func Values(b []byte) int {
	n, _ := measure(b)
	return n
}

// measure returns the number of values and the deepest nesting. It stops at either
// limit.
func measure(b []byte) (values, deepest int) {
	depth := 0
	for i := 0; i < len(b) && values <= MaxValues && deepest <= MaxDepth; i++ {
		switch b[i] {
		case '"':
			values++
			for i++; i < len(b) && b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			values++
			depth++
			deepest = max(deepest, depth)
		case '}', ']':
			depth--
		case 't', 'f', 'n':
			values++
		}
	}
	return values, deepest
}
