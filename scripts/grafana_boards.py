#!/usr/bin/env python3
"""Write the PromQL expressions of vLLM's Grafana boards, for the test of appliance/metrics.

Usage: scripts/grafana_boards.py VLLM VERSION COMMIT > appliance/metrics/testdata/boards-vllm.txt

VLLM is a source tree of vLLM, such as the unpacked source distribution of a release. Each
expression is on one line, once a board.
"""
import json
import pathlib
import sys

HEAD = """\
# PromQL expressions of the Grafana boards of vLLM {version}, commit {commit}, written by
# scripts/grafana_boards.py. Licence: Apache-2.0. Copyright contributors to the vLLM project.
"""


def expressions(node):
    """Yield the expressions of panels and of variables below node."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "expr" or key == "definition":
                yield " ".join(value.split())
            else:
                yield from expressions(value)
    elif isinstance(node, list):
        for value in node:
            yield from expressions(value)


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    root = pathlib.Path(sys.argv[1]) / "examples" / "observability"
    boards = sorted(p for p in root.rglob("*.json") if '"panels"' in p.read_text("utf-8"))
    if not boards:
        sys.exit(f"{root}: there are no boards")
    print(HEAD.format(version=sys.argv[2], commit=sys.argv[3]), end="")
    for board in boards:
        print(f"\n## {board.relative_to(root)}")
        for line in sorted(set(expressions(json.loads(board.read_text("utf-8"))))):
            print(line)


main()
