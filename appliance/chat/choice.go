package chat

import (
	"fmt"
	"unicode/utf8"

	"vapp.dev/appliance/chat/dialect"
	"vapp.dev/engine"
)

// choice decodes the tokens of one reply.
type choice struct {
	params     *RequestParams
	prompt     int
	stream     *engine.Stream // nil: nothing to compute
	text       Text
	vocabulary Vocabulary
	dec        Decoder
	scan       *scanner
	source     *EncodedPrompt

	prefix    string // echo: the text before the reply's own
	echoed    bool   // the first delta carries the prompt's logprobs
	begun     bool   // a token has added to the text; used for logprobs only
	skip      bool   // leave special tokens out of the text
	include   bool   // keep the text of a final stop token
	minTokens int
	discard   bool // max_tokens is 0: drop the token that had to be computed
	tokens    int  // generated so far
	cached    int
	chars     int // of the text so far, including what the stop scanner holds back
	done      bool
	parser    *replyParser // nil: all of the reply is text
	repeats   *repeats     // nil: repetition is not detected
	segments  *segmenter   // nil: not requested
}

// choice returns the decoder of one stream of a prompt.
func (s *Service) choice(r *Request, run *Run, prompt int, st *engine.Stream) (*choice, error) {
	a, p := &r.params, &run.Prompts[prompt]
	parser, err := s.newReplyParser(r, run, p)
	if err != nil {
		return nil, err
	}
	c := &choice{
		params: a, parser: parser,
		prompt: prompt, stream: st, text: s.cfg.Text, source: p,
		vocabulary: s.cfg.Vocabulary, skip: a.SkipSpecialTokens,
		dec:       s.cfg.Text.NewDecoder(a.SkipSpecialTokens),
		scan:      newScanner(a.Stop, a.IncludeStop),
		include:   a.IncludeStop,
		minTokens: a.MinTokens,
		discard:   p.output == 0,
		repeats:   a.Repetition.follow(),
	}
	if a.Segments {
		c.segments = &segmenter{}
	}
	if a.Echo && a.Chat == nil {
		c.prefix, c.echoed = p.text, a.Logprobs != nil
		c.chars = utf8.RuneCountInString(p.text)
	}
	return c, nil
}

// echoOnly returns the delta of a choice that computes nothing.
func (c *choice) echoOnly() Delta {
	c.done = true
	return Delta{Text: c.takePrefix(), Finish: engine.FinishLength.String()}
}

// takePrefix returns the prefix, once.
func (c *choice) takePrefix() string {
	p := c.prefix
	c.prefix = ""
	return p
}

// feed turns events into one delta. Text after a stop string is dropped, and the stream is
// cancelled. With an error, the delta holds the tokens before it.
func (c *choice) feed(evs []engine.Event) (Delta, error) {
	d := Delta{Text: c.takePrefix()}
	for _, ev := range evs {
		if ev.Finish == engine.FinishError {
			if len(d.Tokens) == 0 {
				d = Delta{}
			}
			return d, c.params.requestError(fmt.Errorf("generation failed: %w", orUnknown(ev.Err)))
		}
		c.cached = max(c.cached, ev.Cached)
		c.promptLogprobs(ev, &d)
		if c.discard {
			if ev.Token >= 0 || ev.Finish != engine.NotFinished {
				c.stream.Cancel()
				return c.end(d, engine.FinishLength.String(), nil), nil
			}
			continue
		}
		if c.token(ev, &d); c.done {
			return d, nil
		}
	}
	return d, nil
}

// orUnknown returns err, or ErrDead where the engine gave no error.
func orUnknown(err error) error {
	if err == nil {
		return engine.ErrDead
	}
	return err
}

// promptLogprobs stores the logprobs of the prompt and, with echo, adds them to the delta.
func (c *choice) promptLogprobs(ev engine.Event, d *Delta) {
	if ev.Prompt == nil && !(c.echoed && ev.Token >= 0) {
		return
	}
	if c.source.Logprobs == nil {
		c.source.Logprobs = c.ofPrompt(ev.Prompt)
	}
	if c.echoed {
		d.Logprobs = append(d.Logprobs, c.source.Logprobs...)
		c.echoed = false
	}
}

// ofPrompt returns the logprobs of the prompt's tokens, with echo also their offsets.
func (c *choice) ofPrompt(list []engine.Logprob) []TokenLogprob {
	first := c.source.Tokens[0]
	out := []TokenLogprob{{Token: first, Text: c.text.TokenText(first)}}
	for _, l := range list {
		out = append(out, tokenLogprob(l, c.text))
	}
	if c.echoed {
		dec, chars := c.text.NewDecoder(c.source.skip), 0
		for i := range out {
			out[i].Offset = chars
			if i > 0 || !c.source.added {
				chars += utf8.RuneCountInString(dec.Push(out[i].Token))
			}
		}
	}
	return out
}

// token decodes one event: its token, and the end of the reply if it is the last.
func (c *choice) token(ev engine.Event, d *Delta) {
	markup := c.parser.marker(ev.Token) != ""
	defer c.segments.afterToken(d, len(d.Segments), markup)
	if ev.Token >= 0 {
		c.tokens++
		d.Tokens = append(d.Tokens, ev.Token)
		var logprob *TokenLogprob
		if ev.Logprob != nil {
			l := c.withBytes(tokenLogprob(*ev.Logprob, c.text))
			l.Offset = c.chars
			d.Logprobs = append(d.Logprobs, l)
			logprob = &l
		}
		if c.segments != nil {
			c.segments.beforeToken(c.parser.thinking(), markup, len(c.vocabulary.TokenBytes(ev.Token)), logprob)
		}
		if ev.Finish != engine.FinishStop || c.include {
			if c.decode(d, ev.Token) {
				return
			}
		}
	}
	finish, stop := ev.Finish.String(), any(nil)
	switch {
	case ev.Finish == engine.FinishStop && ev.StopToken >= 0:
		stop = ev.StopToken
	case ev.Finish == engine.NotFinished && c.repeats.take(ev.Token) && c.tokens >= c.minTokens:
		finish, stop = "repetition", "repetition_detected"
		c.stream.Stop()
	case ev.Finish == engine.NotFinished:
		return
	}
	if c.write(d, c.dec.Flush()) {
		return
	}
	c.release(d, c.scan.flush())
	*d = c.end(*d, finish, stop)
}

// decode writes a token's text. Before a marker it flushes the decoder.
func (c *choice) decode(d *Delta, id int32) (stopped bool) {
	m := c.parser.marker(id)
	if m == "" {
		return c.write(d, c.dec.Push(id))
	}
	if c.write(d, c.dec.Flush()) {
		return true
	}
	c.dec.Push(id)
	c.parser.put(m)
	return c.write(d, m)
}

// release adds text that cannot become part of a stop string any more.
func (c *choice) release(d *Delta, text string) {
	if c.parser == nil {
		d.Text += text
		if text != "" {
			c.segments.add(d, Segment{Kind: dialect.Content, Text: text})
		}
		return
	}
	c.parser.take(d, text, c.segments)
}

// write passes text through the stop scanner and reports whether a stop string ended it.
func (c *choice) write(d *Delta, text string) bool {
	c.chars += utf8.RuneCountInString(text)
	if c.parser != nil {
		c.parser.written += len(text)
	}
	out, stopped := c.scan.push(text, c.tokens > c.minTokens)
	c.release(d, out)
	if stopped {
		c.stream.Stop()
		*d = c.end(*d, engine.FinishStop.String(), c.scan.reason())
	}
	return stopped
}

// end finishes the choice.
func (c *choice) end(d Delta, finish string, stop any) Delta {
	c.done = true
	if c.parser != nil {
		finish = c.parser.end(&d, finish, c.segments)
	}
	d.Finish, d.Stop = finish, stop
	return d
}
