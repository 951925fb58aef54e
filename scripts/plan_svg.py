"""Runs `vapp plan` on a pseudo-terminal and draws what it prints as an SVG.

usage: plan_svg.py [--check] VAPP OUTPUT

The plan is of a catalogued GPU and a catalogued model, so every machine draws the same picture.
"""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from xml.sax.saxutils import escape

COLUMNS = 100
COMMAND = ["plan", "profiles/gemma4-fp8.cue", "--gpu", "a100-80g"]
LAST = "run at once"  # the last line that is drawn begins with it

# Size of a character cell, of the text and of the margin, in pixels.
CELL, LINE, FONT, MARGIN = 7.8, 17, 13, 14

# Colours of ANSI's palette on a dark ground.
PALETTE = {
    31: "#f47067", 32: "#57ab5a", 33: "#c69026", 34: "#539bf5", 35: "#b083f0", 36: "#39c5cf", 90: "#768390",
}
TEXT, GROUND = "#d1d7e0", "#1c2128"


def output(vapp):
    """Returns what the command prints on a terminal, and raises where it fails."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    with tempfile.TemporaryDirectory() as empty:  # cached weights would change the line that names the source
        env = {k: v for k, v in os.environ.items() if k != "NO_COLOR"}
        env.update(TERM="xterm-256color", HF_HUB_CACHE=empty)
        process = subprocess.Popen([vapp, *COMMAND], stdout=theirs, stderr=subprocess.PIPE, env=env)
        os.close(theirs)
        chunks = []
        while True:
            try:
                chunk = os.read(ours, 65536)
            except OSError:  # Linux: the other end is closed
                break
            if not chunk:
                break
            chunks.append(chunk)
        os.close(ours)
        error = process.stderr.read().decode()
        if process.wait() != 0:
            sys.exit(f"{vapp} failed: {error}")
    return b"".join(chunks).decode().replace("\r\n", "\n")


def spans(line):
    """Splits a line at its colour escapes and returns pairs of colour and text."""
    colour, out = TEXT, []
    for part in re.split(r"(\x1b\[[0-9;]*m)", line):
        match = re.fullmatch(r"\x1b\[([0-9;]*)m", part)
        if match:
            colour = PALETTE.get(int(match[1] or 0), TEXT)
        elif part:
            out.append((colour, part))
    return out


def svg(lines):
    """Returns the SVG of the lines, each part of one colour fixed to its columns."""
    width, height = round(COLUMNS * CELL + 2 * MARGIN), len(lines) * LINE + 2 * MARGIN
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        f' font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono, monospace" font-size="{FONT}">',
        f'<rect width="{width}" height="{height}" rx="8" fill="{GROUND}"/>',
    ]
    for row, line in enumerate(lines):
        column, y = 0, MARGIN + row * LINE + FONT
        for colour, text in spans(line):
            kept = text.strip(" ")
            if kept:
                x = MARGIN + (column + len(text) - len(text.lstrip(" "))) * CELL
                out.append(
                    f'<text x="{x:.1f}" y="{y}" fill="{colour}" textLength="{len(kept) * CELL:.1f}"'
                    f' lengthAdjust="spacingAndGlyphs" xml:space="preserve">{escape(kept)}</text>'
                )
            column += len(text)
    out.append("</svg>")
    return "\n".join(out) + "\n"


def main():
    arguments = sys.argv[1:]
    check = arguments[:1] == ["--check"]
    vapp, path = arguments[check:]
    lines = []
    for line in output(vapp).split("\n"):
        lines.append(line)
        if line.strip().startswith(LAST):
            break
    drawn = svg(["$ vapp " + " ".join(COMMAND), "", *lines])
    if not check:
        with open(path, "w", encoding="utf-8") as file:
            file.write(drawn)
    elif open(path, encoding="utf-8").read() != drawn:
        sys.exit(f"{path} is not what {vapp} prints; scripts/plan-svg.sh writes it")


main()
