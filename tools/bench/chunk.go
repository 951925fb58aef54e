package bench

import (
	"errors"
	"fmt"
)

// chunk is the part of a stream's record that a benchmark uses.
type chunk struct {
	// choices reports whether there is a choice, so that the record counts as a token.
	choices bool
	// dropUnsent reports whether a choice has a finish_reason.
	finished bool
	// text is the text generated so far; read appends to it.
	text []byte
	// prompt and completion are the token counts of usage, -1 where there is none.
	prompt, completion int
	// failed is an error message, nil where there is none.
	failed []byte
}

// errorObject is the record {"object": "error", "message": …}, which older vLLM servers send inside
// a stream.
type errorObject struct {
	is      bool
	message []byte
}

// read parses a record and appends its text to c.text.
func (c *chunk) read(record []byte) error {
	c.choices, c.finished, c.prompt, c.completion, c.failed = false, false, -1, -1, nil
	s := scanner{b: record}
	var old errorObject
	err := s.object(func(key []byte) error {
		switch string(key) {
		case "choices":
			if s.peek() == '[' {
				return s.array(func(i int) error { c.choices = true; return c.choice(&s, i == 0) })
			}
		case "usage":
			if s.peek() == '{' {
				return c.usage(&s)
			}
		case "error":
			if s.peek() != 'n' {
				return c.error(&s)
			}
		case "object", "message":
			return old.field(&s, key)
		}
		return s.skip(0)
	})
	if old.is && c.failed == nil {
		c.failed = append([]byte{}, old.message...)
	}
	if s.space(); err == nil && s.i != len(record) {
		err = errJSON
	}
	return err
}

// field reads the value of object or message.
func (o *errorObject) field(s *scanner, key []byte) error {
	if s.peek() != '"' {
		return s.skip(0)
	}
	inside, err := s.text()
	if string(key) == "object" {
		o.is = string(inside) == "error"
	} else {
		o.message = unquote(nil, inside)
	}
	return err
}

// stoppedEarly reports whether a finish reason means that the server stopped the request early.
func stoppedEarly(reason []byte) bool { return string(reason) == "abort" || string(reason) == "error" }

// choice reads one choice; only the text of the first one is kept.
func (c *chunk) choice(s *scanner, first bool) error {
	if s.peek() != '{' {
		return s.skip(0)
	}
	return s.object(func(key []byte) error {
		switch k := string(key); {
		case k == "finish_reason" && s.peek() == '"':
			reason, err := s.text()
			if c.finished = true; stoppedEarly(reason) {
				c.failed = append([]byte("finish_reason "), reason...)
			}
			return err
		case k == "text" && first:
			return c.piece(s)
		case k == "delta" && first && s.peek() == '{':
			return s.object(func(key []byte) error {
				if k := string(key); k == "content" || k == "reasoning" || k == "reasoning_content" {
					return c.piece(s)
				}
				return s.skip(0)
			})
		}
		return s.skip(0)
	})
}

// piece appends a string to the text and skips any other value.
func (c *chunk) piece(s *scanner) error {
	if s.peek() != '"' {
		return s.skip(0)
	}
	inside, err := s.text()
	if err == nil {
		c.text = unquote(c.text, inside)
	}
	return err
}

func (c *chunk) usage(s *scanner) error {
	return s.object(func(key []byte) error {
		var to *int
		switch string(key) {
		case "prompt_tokens":
			to = &c.prompt
		case "completion_tokens":
			to = &c.completion
		}
		if d := s.peek(); to == nil || d != '-' && (d < '0' || d > '9') {
			return s.skip(0)
		}
		x, err := s.number()
		if err != nil {
			return err
		}
		if x < 0 || x > 1<<31 || x != float64(int(x)) {
			return fmt.Errorf("usage.%s is %v", key, x)
		}
		*to = int(x)
		return nil
	})
}

// error keeps the message of {"error": {"message": …}} or of {"error": "…"}.
func (c *chunk) error(s *scanner) error {
	c.failed = []byte("no message")
	switch s.peek() {
	case '"':
		inside, err := s.text()
		c.failed = unquote(nil, inside)
		return err
	case '{':
		return s.object(func(key []byte) error {
			if string(key) != "message" || s.peek() != '"' {
				return s.skip(0)
			}
			inside, err := s.text()
			c.failed = unquote(nil, inside)
			return err
		})
	}
	return s.skip(0)
}

// broken returns the reason of a failed record: not JSON, or JSON with an invalid value.
func broken(err error) string {
	if errors.Is(err, errJSON) {
		return "broken SSE record"
	}
	return "impossible usage"
}
