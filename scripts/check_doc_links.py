"""Prints each link and path of Markdown files that does not exist.

usage: check_doc_links.py FILE.md... (from the root of the repository)

A path is a text in backquotes that begins with a folder of the root, or names a file at the root. It
may have *, {a,b} and a trailing slash, and is looked up from the root.
"""

import glob
import itertools
import os
import re
import sys

# Written by commands, fetched or built: they need not be there.
MADE = re.compile(r"(models|bin|\.cache)/|.*/node_modules|.*\.lock\.json")


def anchors(path):
    """Returns the anchors of the headings of a Markdown file, as forges make them."""
    out, fenced = set(), False
    for line in open(path, encoding="utf-8"):
        if line.startswith("```"):
            fenced = not fenced
        match = None if fenced else re.match(r"#+ +(.*)", line)
        if match:
            text = re.sub(r"[^\w\- ]", "", match[1].strip().lower())
            out.add(text.replace(" ", "-"))
    return out


def expanded(path):
    """Returns the paths that a path with {a,b} stands for."""
    parts = re.split(r"\{([^{}]*)\}", path)
    choices = [part.split(",") if i % 2 else [part] for i, part in enumerate(parts)]
    return ["".join(choice) for choice in itertools.product(*choices)]


def check(file, folders):
    """Returns the complaints about one file."""
    out, fenced = [], False
    for number, line in enumerate(open(file, encoding="utf-8"), 1):
        if line.startswith("```"):
            fenced = not fenced
        if fenced:
            continue
        at = f"{file}:{number}"
        for target in re.findall(r"\]\(([^)\s]+)\)", line):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            path = os.path.normpath(os.path.join(os.path.dirname(file), path)) if path else file
            if not os.path.exists(path):
                out.append(f"{at}: link to {target}, which does not exist")
            elif anchor and path.endswith(".md") and anchor not in anchors(path):
                out.append(f"{at}: link to {target}, which has no such heading")
        for text in re.findall(r"`([^`]+)`", line):
            if not re.fullmatch(r"[\w.\-/*{},]+", text) or MADE.match(text):
                continue
            text = re.sub(r"\.[A-Z]\w*$", "", text)  # a name of a package
            first, slash, _ = text.partition("/")
            named = slash and first in folders or not slash and re.fullmatch(r"[A-Z]\w+\.md|law_test\.go", text)
            if not named:
                continue
            for path in expanded(text):
                here = os.path.join(os.path.dirname(file), path)
                if not glob.glob(path) and not glob.glob(path + ".*") and not glob.glob(here):
                    out.append(f"{at}: `{text}`: {path} does not exist")
    return out


def main():
    folders = {name for name in os.listdir(".") if os.path.isdir(name) and not name.startswith(".")} | {"tools", "nearest"}
    complaints = [c for file in sys.argv[1:] for c in check(file, folders)]
    print("\n".join(complaints), end="\n" if complaints else "")
    sys.exit(1 if complaints else 0)


main()
