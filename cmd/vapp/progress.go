package main

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/term"

	"vapp.dev/appliance/plan"
	"vapp.dev/engine"
)

// loadProgress shows how far loading has come: a bar on a terminal, elsewhere a
// plain line for every tenth.
func loadProgress(f *os.File) func(engine.Progress) { return progress(f, "Loading weights") }

// hashProgress shows how far the hashing of files has come.
func hashProgress(f *os.File) func(engine.Progress) { return progress(f, "Hashing files") }

func progress(f *os.File, what string) func(engine.Progress) {
	if term.IsTerminal(int(f.Fd())) {
		return progressBar(f, what)
	}
	return progressLines(f, what)
}

// progressBar makes the bar with the first report and ends it with the last.
func progressBar(f *os.File, what string) func(engine.Progress) {
	var once sync.Once
	var bars *mpb.Progress
	var bar *mpb.Bar
	return func(p engine.Progress) {
		once.Do(func() {
			bars = mpb.New(mpb.WithOutput(f), mpb.WithWidth(60), mpb.WithRefreshRate(100*time.Millisecond))
			bar = bars.AddBar(p.Total,
				mpb.PrependDecorators(decor.Name(what+" ")),
				mpb.AppendDecorators(decor.CountersKibiByte("% .1f / % .1f"), decor.Percentage(decor.WCSyncSpace)))
		})
		bar.SetCurrent(p.Done)
		if p.Done >= p.Total {
			bar.SetTotal(p.Total, true)
			bars.Wait()
		}
	}
}

func progressLines(f *os.File, what string) func(engine.Progress) {
	shown := int64(-1)
	return func(p engine.Progress) {
		tenth := int64(10)
		if p.Total > 0 {
			tenth = p.Done * 10 / p.Total
		}
		if tenth == shown {
			return
		}
		shown = tenth
		fmt.Fprintf(f, "%s: %3d%% (%s of %s)\n", what, tenth*10, plan.Size(p.Done), plan.Size(p.Total))
	}
}
