package schema

import (
	"strconv"
	"strings"

	"cuelang.org/go/cue/scanner"
	"cuelang.org/go/cue/token"
)

// Limits of a file, checked before it is parsed: CUE's parser and evaluator are recursive,
// and Go cannot recover from a stack overflow.
const (
	maxNesting  = 100  // of brackets
	maxChain    = 1000 // operators, selectors and labels between two commas
	maxColons   = 8192 // fields
	maxDigits   = 64   // of a number
	maxExponent = 400  // of a number
)

// withinLimits checks the tokens of a file against the limits. It leaves invalid tokens to
// the parser.
func withinLimits(name string, src any) error {
	b, ok := src.([]byte)
	if !ok {
		return nil
	}
	if len(b) > maxBytes {
		return problem(TooLarge, name, "more than %d bytes", maxBytes)
	}
	l := &limiter{chains: []int{0}}
	file := token.NewFile(name, -1, len(b))
	l.scan.Init(file, b, func(token.Pos, string, []any) {}, 0)
	for {
		pos, tok, lit := l.scan.Scan()
		if tok == token.EOF {
			return nil
		}
		if reason := l.next(tok, lit); reason != "" {
			at := pos.Position()
			e := problem(TooLarge, name, "%s", reason)
			e.List[0].Pos.Line, e.List[0].Pos.Column = at.Line, at.Column
			return e
		}
	}
}

// limiter counts the tokens of a file.
type limiter struct {
	scan   scanner.Scanner
	chains []int // per open bracket: operators since the last comma
	inText []int // depths at which the open interpolations began
	colons int
}

// next counts a token. The reason is "" unless a limit is exceeded.
func (l *limiter) next(tok token.Token, lit string) (reason string) {
	depth := len(l.chains)
	switch {
	case tok == token.INTERPOLATION:
		l.inText = append(l.inText, depth)
	case tok == token.LPAREN, tok == token.LBRACK, tok == token.LBRACE:
		if depth > maxNesting {
			return "more than " + strconv.Itoa(maxNesting) + " brackets inside each other"
		}
		l.chains = append(l.chains, 0)
	case tok == token.RPAREN, tok == token.RBRACK, tok == token.RBRACE:
		if depth > 1 {
			l.chains = l.chains[:depth-1]
		}
		l.resume(tok)
	case tok == token.COMMA:
		l.chains[depth-1] = 0
	case tok == token.INT, tok == token.FLOAT:
		return longNumber(lit)
	case tok.IsOperator():
		if tok == token.COLON {
			l.colons++
		}
		l.chains[depth-1]++
	}
	switch {
	case l.chains[len(l.chains)-1] > maxChain:
		return "more than " + strconv.Itoa(maxChain) + " operators in one expression"
	case l.colons > maxColons:
		return "more than " + strconv.Itoa(maxColons) + " fields"
	}
	return ""
}

// resume continues with the text around an interpolation that ends here.
func (l *limiter) resume(tok token.Token) {
	n := len(l.inText)
	if n == 0 || tok != token.RPAREN || l.inText[n-1] != len(l.chains) {
		return
	}
	if !strings.HasSuffix(l.scan.ResumeInterpolation(), "(") {
		l.inText = l.inText[:n-1]
	}
}

// longNumber returns why a number is refused: more digits or a larger exponent than any field
// needs.
func longNumber(lit string) string {
	if len(lit) > maxDigits {
		return "a number of more than " + strconv.Itoa(maxDigits) + " digits"
	}
	i := strings.IndexAny(lit, "eE")
	if i < 0 || strings.HasPrefix(lit, "0x") || strings.HasPrefix(lit, "0X") {
		return ""
	}
	n, err := strconv.Atoi(strings.ReplaceAll(lit[i+1:], "_", ""))
	if err != nil || n > maxExponent || n < -maxExponent {
		return "a number with an exponent beyond " + strconv.Itoa(maxExponent)
	}
	return ""
}
