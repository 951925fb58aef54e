"""Write docs/gguf.md from the rows that TestSameAsLlamaCPP printed.

    python report.py ROWS REFUSED VERSION PAGE

The page keeps what is before the line that begins the tables.
"""

import re
import sys
from pathlib import Path

BEGIN = "<!-- written by make compare-llamacpp -->"


def number(x):
    return f"{x:.1e}" if x < 0.01 else f"{x:.2g}"


def share(cells):
    return tuple(map(sum, zip(*(map(int, c.split("/")) for c in cells))))


def table(head, rows, key, names):
    """One line for each family or block type, with the sums of its tokens and its largest differences."""
    out = [f"| {head} | files | float32: tokens | largest | rms | file: tokens | largest | rms | llama.cpp's own |", "|---|---|---|---|---|---|---|---|---|"]
    for name in names:
        of = [r for r in rows if r[key] == name]
        exact, file = share(r[2] for r in of), share(r[5] for r in of)
        most = [number(max(float(r[i]) for r in of)) for i in (3, 4, 7, 8)]
        own = number(max(float(r[6]) for r in of) / 2)
        out.append(f"| {name} | {len(of)} | {exact[0]} of {exact[1]} | {most[0]} | {most[1]} | {file[0]} of {file[1]} | {most[2]} | {most[3]} | {own} |")
    return out


def main():
    rows_at, refused_at, version, page = sys.argv[1:]
    rows = [[c.strip() for c in line.strip().strip("|").split("|")] for line in Path(rows_at).read_text(encoding="utf-8").splitlines()]
    families, kinds = ([*dict.fromkeys(r[i] for r in sorted(rows, key=lambda r: r[i]))] for i in (0, 1))
    out = [BEGIN, "", f"llama.cpp of {version}; {len(rows)} files. A difference is in standard deviations of a row's logits.", ""]
    of = {f: sorted(r[1] for r in rows if r[0] == f) for f in families}
    for some in sorted({tuple(x) for x in of.values() if len(x) < len(kinds)}):
        out += [f"{', '.join(f for f in families if tuple(of[f]) == some)}: {', '.join(some)} alone.", ""]
    out += ["### By family", "", *table("family", rows, 0, families), "", "### By block type, without Gemma", "", *table("type", [r for r in rows if not r[0].startswith("gemma")], 1, kinds), ""]
    refused = [re.sub(r"^tiny-", "", line) for line in Path(refused_at).read_text(encoding="utf-8").splitlines()] if Path(refused_at).exists() else []
    if refused:
        out += ["### What llama.cpp refuses", "", *(f"- {line}" for line in refused), ""]
    path = Path(page)
    path.write_text(path.read_text(encoding="utf-8").split(BEGIN)[0] + "\n".join(out), encoding="utf-8")


if __name__ == "__main__":
    main()
