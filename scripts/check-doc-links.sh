#!/bin/sh
# Checks the documents: every relative link, with its anchor, and every path in backquotes
# must exist.
#
#   scripts/check-doc-links.sh [FILE.md...]
#
# Without files it checks the README, the other documents at the root, docs/, examples/ and
# every design.md. Exit code 1: something is missing, each on a line.
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- *.md docs/*.md docs/*/*.md examples/*.md examples/*/*.md $(git ls-files -co --exclude-standard -- '*/design.md')
exec "${PYTHON:-python3}" scripts/check_doc_links.py "$@"
