#!/bin/sh
# Writes docs/plan.svg: the beginning of a plan as a terminal of 100 columns shows it.
#
#   scripts/plan-svg.sh [--check] [VAPP]
#
# VAPP is the binary (default bin/vapp). --check writes nothing and exits with code 1
# where docs/plan.svg is not what the binary prints now.
set -eu
cd "$(dirname "$0")/.."

check=
if [ "${1-}" = --check ]; then
	check=--check
	shift
fi
exec "${PYTHON:-python3}" scripts/plan_svg.py $check "${1:-bin/vapp}" docs/plan.svg
