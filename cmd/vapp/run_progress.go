package main

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// answerProgress shows how many of n prompts are answered: a bar on a terminal, elsewhere a line
// for every tenth.
func answerProgress(f *os.File, n int) func(answered) {
	if drawable(f) {
		return answerBar(f, n)
	}
	shown := 0
	return func(a answered) {
		if tenth := (a.whole + a.failed) * 10 / n; tenth > shown {
			shown = tenth
			fmt.Fprintf(f, "Answering: %3d%% (%d of %d prompts)\n", tenth*10, a.whole+a.failed, n)
		}
	}
}

func answerBar(f *os.File, n int) func(answered) {
	var speed atomic.Pointer[string]
	empty := ""
	speed.Store(&empty)
	bars := mpb.New(mpb.WithOutput(f), mpb.WithWidth(60), mpb.WithRefreshRate(100*time.Millisecond))
	bar := bars.AddBar(int64(n),
		mpb.PrependDecorators(decor.Name("Answering ")),
		mpb.AppendDecorators(
			decor.CountersNoUnit("%d of %d prompts"),
			decor.Any(func(decor.Statistics) string { return *speed.Load() })))
	return func(a answered) {
		if a.ended {
			bar.Abort(false)
			bars.Wait()
			return
		}
		text := ", " + rate(a.usage.Completion, a.elapsed)
		speed.Store(&text)
		bar.SetCurrent(int64(a.whole + a.failed))
		if a.whole+a.failed >= n {
			bars.Wait()
		}
	}
}
