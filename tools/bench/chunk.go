package bench

import (
	"errors"
	"fmt"
)

// chunk is what a benchmark reads of one record of a stream.
type chunk struct {
	// choices says that there is at least one: the record counts as a token.
	choices bool
	// finished says that a choice gives its finish_reason.
	finished bool
	// text appends to what was generated so far.
	text []byte
	// prompt and completion are the usage's counts, -1 where it has none.
	prompt, completion int
	// failed is the message of an error, nil where there is none.
	failed []byte
}

// errorObject is the record {"object": "error", "message": …}, which older servers of vLLM
// send in the midst of a stream.
type errorObject struct {
	is      bool
	message []byte
}

// read takes a record apart; text is added to c.text.
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

// givenUp tells the finish reasons of an answer that the server did not bring to its end.
func givenUp(reason []byte) bool { return string(reason) == "abort" || string(reason) == "error" }

// choice reads one choice; only the first's text is kept.
func (c *chunk) choice(s *scanner, first bool) error {
	if s.peek() != '{' {
		return s.skip(0)
	}
	return s.object(func(key []byte) error {
		switch k := string(key); {
		case k == "finish_reason" && s.peek() == '"':
			reason, err := s.text()
			if c.finished = true; givenUp(reason) {
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

// piece adds a string to the text; anything else is none.
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

// broken tells a record that is no JSON from one that says what cannot be.
func broken(err error) string {
	if errors.Is(err, errJSON) {
		return "broken SSE record"
	}
	return "impossible usage"
}
