package chat

import (
	"fmt"
	"unicode/utf8"

	"vapp.dev/appliance/chat/dialect"
	"vapp.dev/engine"
)

// choice is one reply on its way from tokens to text.
type choice struct {
	ask        *Ask
	prompt     int
	stream     *engine.Stream // nil: nothing to compute
	text       Text
	vocabulary Vocabulary
	dec        Decoder
	scan       *scanner
	source     *Prompted

	prefix    string // comes before the reply's text: echo
	echoed    bool   // the prompt's logprobs go with the first delta
	begun     bool   // a token has added to the text; kept for logprobs only
	skip      bool   // special tokens are left out of the text
	include   bool   // the text of a final stop token is kept
	minTokens int
	discard   bool // asked for no tokens; the one that must be computed is dropped
	tokens    int  // generated so far
	cached    int
	chars     int // of text so far, what is held back included
	done      bool
	speech    *speech  // nil: all of it is text
	repeats   *repeats // nil: nothing is looked for
	order     *order   // nil: nobody asks for it
}

// choice makes the pipeline of one stream.
func (s *Service) choice(r *Request, run *Run, prompt int, st *engine.Stream) (*choice, error) {
	a, p := &r.ask, &run.Prompts[prompt]
	speech, err := s.speech(r, run, p)
	if err != nil {
		return nil, err
	}
	c := &choice{
		ask: a, speech: speech,
		prompt: prompt, stream: st, text: s.cfg.Text, source: p,
		vocabulary: s.cfg.Vocabulary, skip: a.SkipSpecialTokens,
		dec:       s.cfg.Text.NewDecoder(a.SkipSpecialTokens),
		scan:      newScanner(a.Stop, a.IncludeStop),
		include:   a.IncludeStop,
		minTokens: a.MinTokens,
		discard:   p.output == 0,
		repeats:   a.Repetition.follow(),
	}
	if a.InOrder {
		c.order = &order{}
	}
	if a.Echo && a.Chat == nil {
		c.prefix, c.echoed = p.text, a.Logprobs != nil
		c.chars = utf8.RuneCountInString(p.text)
	}
	return c, nil
}

// only is the delta of a choice that computes nothing.
func (c *choice) only() Delta {
	c.done = true
	return Delta{Text: c.lead(), Finish: engine.FinishLength.String()}
}

// lead gives the prefix out, once.
func (c *choice) lead() string {
	p := c.prefix
	c.prefix = ""
	return p
}

// feed turns events into one delta. What comes after a stop string is lost, and
// the stream is cancelled. With an error the delta is what tokens before it gave.
func (c *choice) feed(evs []engine.Event) (Delta, error) {
	d := Delta{Text: c.lead()}
	for _, ev := range evs {
		if ev.Finish == engine.FinishError {
			if len(d.Tokens) == 0 {
				d = Delta{}
			}
			return d, c.ask.explain(fmt.Errorf("generation failed: %w", orUnknown(ev.Err)))
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

func orUnknown(err error) error {
	if err == nil {
		return engine.ErrDead
	}
	return err
}

// promptLogprobs keeps those of the prompt, and with echo also reports them.
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

// ofPrompt are the logprobs of the prompt's tokens, with their places in its text.
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

// token takes one event: its token, and the end if it is the last.
func (c *choice) token(ev engine.Event, d *Delta) {
	markup := c.speech.marker(ev.Token) != ""
	defer c.order.after(d, len(d.Said), markup)
	if ev.Token >= 0 {
		c.tokens++
		d.Tokens = append(d.Tokens, ev.Token)
		var told *TokenLogprob
		if ev.Logprob != nil {
			l := c.spelled(tokenLogprob(*ev.Logprob, c.text))
			l.Offset = c.chars
			d.Logprobs = append(d.Logprobs, l)
			told = &l
		}
		if c.order != nil {
			c.order.before(c.speech.thinking(), markup, len(c.vocabulary.TokenBytes(ev.Token)), told)
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
	c.give(d, c.scan.flush())
	*d = c.end(*d, finish, stop)
}

// decode passes a token's text on, a marker apart from what was held before it.
func (c *choice) decode(d *Delta, id int32) (stopped bool) {
	m := c.speech.marker(id)
	if m == "" {
		return c.write(d, c.dec.Push(id))
	}
	if c.write(d, c.dec.Flush()) {
		return true
	}
	c.dec.Push(id)
	c.speech.put(m)
	return c.write(d, m)
}

// give adds text that no stop string can take back any more.
func (c *choice) give(d *Delta, text string) {
	if c.speech == nil {
		d.Text += text
		if text != "" {
			c.order.say(d, Said{Kind: dialect.Content, Text: text})
		}
		return
	}
	c.speech.take(d, text, c.order)
}

// write passes text through the scanner and reports that a stop string ended it.
func (c *choice) write(d *Delta, text string) bool {
	c.chars += utf8.RuneCountInString(text)
	if c.speech != nil {
		c.speech.written += len(text)
	}
	out, stopped := c.scan.push(text, c.tokens > c.minTokens)
	c.give(d, out)
	if stopped {
		c.stream.Stop()
		*d = c.end(*d, engine.FinishStop.String(), c.scan.reason())
	}
	return stopped
}

// end finishes the choice.
func (c *choice) end(d Delta, finish string, stop any) Delta {
	c.done = true
	if c.speech != nil {
		finish = c.speech.end(&d, finish, c.order)
	}
	d.Finish, d.Stop = finish, stop
	return d
}
