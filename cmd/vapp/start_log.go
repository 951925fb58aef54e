package main

import (
	"fmt"
	"log/slog"
	"os"
	"strings"

	"vapp.dev/appliance"
	"vapp.dev/appliance/hub"
	"vapp.dev/engine"
)

// startLog writes what vapp up says outside of the server's own log, in the format of that log.
type startLog struct {
	to  *os.File
	log *slog.Logger // nil: text
}

// use sets the format: text or json.
func (s *startLog) use(format string) {
	if s.log = nil; format == "json" {
		s.log = slog.New(slog.NewJSONHandler(s.to, nil))
	}
}

// logFormat returns the profile's log.format; text if the profile cannot be read.
func logFormat(profile string, m appliance.Machine) string {
	p, err := m.Load(profile)
	if err != nil {
		return "text"
	}
	return p.Log.Format
}

func (s *startLog) line(text string) {
	if s.log == nil {
		fmt.Fprintln(s.to, text)
		return
	}
	s.log.Info(text)
}

// progress returns a function that shows the progress of an operation.
func (s *startLog) progress(what string) func(engine.Progress) {
	if s.log == nil {
		return progress(s.to, what)
	}
	return progressRecords(s.log, what)
}

// loading is loadProgress in the format of s.
func (s *startLog) loading() func(engine.Progress) {
	return loadingOf(s.progress("Loading weights"), s.progress("Capturing CUDA graphs"))
}

// hubClient is the function hubClient in the format of s.
func (s *startLog) hubClient(settings hub.Settings) *hub.Client {
	c := hubClient(settings)
	c.Say = s.line
	show := s.progress("Fetching weights")
	c.Progress = func(p hub.Progress) { show(engine.Progress{Done: p.Done, Total: p.Total}) }
	return c
}

// failed writes the error that ends the command as a record of a JSON log. It returns the error
// that main ends with.
func (s *startLog) failed(err error) error {
	if err == nil || s.log == nil {
		return err
	}
	text, code := errorText(err)
	if text = strings.TrimSpace(text); text != "" {
		s.log.Error(text)
	}
	return exitError(code)
}
