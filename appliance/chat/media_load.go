package chat

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// loadMedia loads the media of a chat, puts their tokens into its prompt, and sets the limit of
// its replies. It runs last before the engine: all that can refuse the request without the
// media has passed.
func (s *Service) loadMedia(ctx context.Context, r *Request, run *Run) error {
	a := &r.params
	if a.Chat == nil || len(a.Chat.media()) == 0 {
		return nil
	}
	p := &run.Prompts[0]
	if !p.nothing {
		if _, err := s.engineParams(ctx, r, p); err != nil {
			return err
		}
		if _, err := s.thinking(ctx, r, p); err != nil {
			return err
		}
	}
	var err error
	if p.Tokens, p.Items, err = s.WithMedia(ctx, a.Chat, r.settings, p.Tokens); err != nil {
		return err
	}
	p.output, err = s.replyLimit(r, len(p.Tokens), a.MaxTokens)
	return err
}

// WithMedia returns the tokens of a prompt with the media of its conversation in place of
// their placeholders. What it loads is held until ctx ends.
func (s *Service) WithMedia(ctx context.Context, c *Conversation, set *Settings, ids []int32) ([]int32, []PromptItem, error) {
	media := c.media()
	if len(media) == 0 {
		return ids, nil, nil
	}
	places, err := findMedia(media, set.Vision, ids)
	if err != nil {
		return nil, nil, err
	}
	items, err := s.loadAll(ctx, c, set.Vision, media)
	if err != nil {
		return nil, nil, err
	}
	out, placed, at := []int32{}, []PromptItem{}, 0
	for _, p := range places {
		out = append(out, ids[at:p.at]...)
		item := items[p.media]
		placed = append(placed, PromptItem{media[p.media].Kind, len(out), item})
		out, at = append(out, item.Tokens...), p.at+p.len
	}
	return append(out, ids[at:]...), placed, nil
}

// CheckMedia refuses the truncation of a prompt with the media of a conversation. c may be nil.
func CheckMedia(c *Conversation, truncates bool) error {
	if truncates && c != nil && len(c.media()) > 0 {
		return invalid("truncate_prompt_tokens", "truncate_prompt_tokens cannot cut a prompt with images or videos: leave it out.")
	}
	return nil
}

// place is a placeholder in a prompt, and the index of its media.
type place struct{ at, len, media int }

// findMedia returns the placeholders of a prompt in order. Each kind must have as many as the
// conversation has items: a text of a user that spells a placeholder would move the items
// behind it.
func findMedia(media []*Media, vision Vision, ids []int32) ([]place, error) {
	byKind := map[string][]int{}
	for i, m := range media {
		byKind[m.Kind] = append(byKind[m.Kind], i)
	}
	var out []place
	for kind, list := range byKind {
		text, mark := vision.Placeholder(kind)
		found := 0
		for at := 0; at+len(mark) <= len(ids); at++ {
			if !slices.Equal(ids[at:at+len(mark)], mark) {
				continue
			}
			if found < len(list) {
				out = append(out, place{at, len(mark), list[found]})
			}
			found++
			at += len(mark) - 1
		}
		if found != len(list) {
			return nil, invalid("messages", "The number of %s placeholders in the prompt must be the number of its %ss: found %d for %d. Leave %s out of texts, and use a chat template that takes %ss.",
				text, kind, found, len(list), text, kind)
		}
	}
	slices.SortFunc(out, func(a, b place) int { return a.at - b.at })
	return out, nil
}

// maxLoading bounds the items of one request that are loaded at the same time.
const maxLoading = 8

// loadAll loads all media. The first error of an item ends the loading of the others.
func (s *Service) loadAll(ctx context.Context, c *Conversation, vision Vision, media []*Media) ([]MediaItem, error) {
	stop := make(chan struct{})
	items, errs := make([]MediaItem, len(media)), make([]error, len(media))
	loading, cancel := context.WithCancel(ctx)
	var once sync.Once
	fail := func() { once.Do(func() { close(stop); cancel() }) }
	encode := func(text string) ([]int32, error) {
		ids, _, err := s.encodeText(loading, text, false, tokenLimit{most: len(text)})
		return ids, err
	}
	slots := make(chan struct{}, maxLoading)
	var wg sync.WaitGroup
next:
	for i, m := range media {
		select {
		case <-stop:
			break next
		case <-ctx.Done():
			errs[i] = ctx.Err()
			break next
		case slots <- struct{}{}:
		}
		wg.Go(func() {
			defer func() { <-slots }()
			if items[i], errs[i] = vision.Load(loading, MediaRequest{*m, c.ProcessorKwargs, c.MediaKwargs, encode}); errs[i] != nil {
				fail()
			}
		})
	}
	wg.Wait()
	err := firstCause(errs)
	if err != nil {
		cancel()
	}
	return items, err // without an error, loading ends with ctx: until then the items are held
}

// firstCause returns the first error that is not the end of a context, else the first error.
func firstCause(errs []error) error {
	var ended error
	for _, err := range errs {
		switch {
		case err == nil:
		case !errors.Is(err, context.Canceled):
			return err
		case ended == nil:
			ended = err
		}
	}
	return ended
}
