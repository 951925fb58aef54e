package figures

import (
	"fmt"
	"slices"
	"strings"
)

// unit returns the divisor of a shown value; memory is measured in bytes.
func unit(key string) float64 {
	if key == Peak || key == ServerPeak || key == Planned {
		return 1 << 20
	}
	return 1
}

// in returns a Stat in another unit.
func (s Stat) in(unit float64) Stat {
	return Stat{s.Median / unit, s.Least / unit, s.Most / unit, s.Runs}
}

// number formats x with at least three digits, and only as many decimals as that needs.
func number(x float64) string {
	switch {
	case x >= 100:
		return fmt.Sprintf("%.0f", x)
	case x >= 10:
		return fmt.Sprintf("%.1f", x)
	default:
		return fmt.Sprintf("%.2f", x)
	}
}

func (s Stat) cell() string {
	switch {
	case s.Runs == 0:
		return "–"
	case s.Runs == 1:
		return number(s.Median)
	default:
		return fmt.Sprintf("%s ± %s", number(s.Median), number((s.Most-s.Least)/2))
	}
}

func (s Stat) percentCell() string {
	if s.Runs == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f %%", s.Median)
}

func (t target) ratioCell() string {
	if !t.measured() {
		return "–"
	}
	return t.String()
}

// percent formats the share of a limit, and the limit.
func percent(share float64, limit Stat) string {
	if share == 0 {
		return "–"
	}
	return fmt.Sprintf("%.0f %% of %s", 100*share, number(limit.Median))
}

// writeRuns lists the limits, and of every part the date, the load of other processes and the
// commands.
func writeRuns(b *strings.Builder, parts Parts) {
	for _, name := range Names() {
		p, ok := parts[name]
		if !ok {
			fmt.Fprintf(b, "### %s\n\nNot measured.\n\n", name)
			continue
		}
		fmt.Fprintf(b, "### %s, %s\n\n", name, day(p.Date))
		writeLimits(b, p)
		for _, n := range p.Notes {
			fmt.Fprintf(b, "%s\n\n", n)
		}
		b.WriteString("| side | command | seconds | others' share of the CPU |\n|---|---|---|---|\n")
		for _, r := range p.Runs {
			seconds, others := fmt.Sprintf("%.0f", r.Seconds), fmt.Sprintf("%.0f %%", 100*r.Foreign)
			if r.Turns {
				seconds, others = "turns", "–"
			}
			fmt.Fprintf(b, "| %s | `%s` | %s | %s |\n", r.Side, strings.Join(r.Command, " "), seconds, others)
		}
		b.WriteString("\n")
		writeTurns(b, p)
		writeExtra(b, p)
	}
}

// writeLimits writes the machine's maximum rates, as measured between the runs and by vapp.
func writeLimits(b *strings.Builder, p Part) {
	var words []string
	for _, l := range []struct{ key, text string }{
		{Bandwidth, "reads %s GB/s"}, {RateF32, "multiplies %s GFLOP/s of f32"}, {RateBF16, "%s GFLOP/s of bf16"}, {RateInt8, "%s GOP/s of int8"},
	} {
		if x := p.Stat(Machine, l.key).in(1e9); x.Runs > 0 {
			words = append(words, fmt.Sprintf(l.text, x.cell()))
		}
	}
	if len(words) > 0 {
		fmt.Fprintf(b, "The machine %s, the latter from registers", strings.Join(words, ", "))
		if x := p.Stat(Vapp, Bandwidth).in(1e9); x.Runs > 0 {
			fmt.Fprintf(b, "; it read %s GB/s within vapp's runs", x.cell())
		}
		b.WriteString(".\n\n")
	}
}

// writeTurns writes the rate of each turn of decoding.
func writeTurns(b *strings.Builder, p Part) {
	if len(p.Turns) == 0 {
		return
	}
	b.WriteString("Decoding, turn by turn, in tokens/s: ")
	for i, t := range p.Turns {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(b, "%s %s at %s GB/s", t.Side, number(t.Decode), number((t.Before+t.After)/2e9))
	}
	b.WriteString(".\n\n")
}

// writeExtra writes the figures that are not in the main table.
func writeExtra(b *strings.Builder, p Part) {
	keys := []string{MedianTTFT, MedianITL, ITL, ServerPeak, Planned}
	sides := []string{Vapp, VappInt8, Llama, LlamaBest}
	if !slices.ContainsFunc(keys, func(k string) bool { return p.best(k, sides...).Runs > 0 }) {
		return
	}
	b.WriteString("| side | first token, median, ms | gap, median, ms | gap, p99, ms | peak of the server, MiB | planned for the engine's run, MiB |\n|---|---|---|---|---|---|\n")
	for _, s := range sides {
		var cells []string
		seen := false
		for _, k := range keys {
			x := p.Stat(s, k).in(unit(k))
			seen = seen || x.Runs > 0
			cells = append(cells, x.cell())
		}
		if seen {
			fmt.Fprintf(b, "| %s | %s |\n", s, strings.Join(cells, " | "))
		}
	}
	b.WriteString("\n")
}
