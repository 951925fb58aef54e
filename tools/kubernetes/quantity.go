package kubernetes

import (
	"fmt"
	"math/big"
	"strings"
)

// suffixes are those of Kubernetes quantities (apimachinery, pkg/api/resource), as powers of 2 or 10.
var suffixes = map[string]struct{ base, power int64 }{
	"": {10, 0}, "n": {10, -9}, "u": {10, -6}, "m": {10, -3}, "k": {10, 3}, "M": {10, 6}, "G": {10, 9}, "T": {10, 12}, "P": {10, 15}, "E": {10, 18},
	"Ki": {2, 10}, "Mi": {2, 20}, "Gi": {2, 30}, "Ti": {2, 40}, "Pi": {2, 50}, "Ei": {2, 60},
}

// quantity reads a Kubernetes quantity such as 2Gi, 500m, 1e9 or 2162232576.
func quantity(text string) (*big.Rat, error) {
	end := strings.LastIndexAny(text, "0123456789.") + 1
	if len(text) > 64 || end == 0 {
		return nil, fmt.Errorf("%.64q is no quantity; allowed: a number with a suffix such as Mi, Gi, m", text)
	}
	number, suffix := text[:end], text[end:]
	n, ok := new(big.Rat).SetString(number)
	s, known := suffixes[suffix]
	// SetString takes fractions, hexadecimal numbers and any exponent too.
	mantissa, exponent, _ := strings.Cut(strings.ToLower(number), "e")
	if !ok || !known || strings.ContainsAny(mantissa, "/xopb_") || len(exponent) > 3 || exponent != "" && suffix != "" {
		return nil, fmt.Errorf("%q is no quantity; allowed: a number with a suffix such as Mi, Gi, m", text)
	}
	power := s.power
	if power < 0 {
		power = -power
	}
	factor := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(s.base), big.NewInt(power), nil))
	if s.power < 0 {
		return n.Quo(n, factor), nil
	}
	return n.Mul(n, factor), nil
}
