#!/usr/bin/env bash
# Record the reference logits under engine/models/testdata again.
#
#   scripts/golden.sh [--light] [--no-bounds]
#
# --light      install torch without its GPU libraries (1.6 GB in place of 7 GB; needs gcc and readelf)
# --no-bounds  leave the tables of README.md alone (they take a few minutes)
#
# GOLDEN_VENV names the virtual environment (default .venv-golden), PYTHON the
# interpreter that creates it (default python3; recorded with 3.11).
set -euo pipefail
cd "$(dirname "$0")/.."

data=engine/models/testdata
venv=${GOLDEN_VENV:-.venv-golden}
model=models/SmolLM2-135M-Instruct.Q4_1.gguf
light=no
bounds=yes
for arg in "$@"; do
	case $arg in
	--light) light=yes ;;
	--no-bounds) bounds=no ;;
	*)
		sed -n '2,10s/^# \{0,1\}//p' "$0" >&2
		exit 2
		;;
	esac
done

if [[ ! -f $model ]]; then
	echo "golden: $model is absent; run make model" >&2
	exit 1
fi

# The stamp says which requirements the environment holds.
want=$(cat "$data/requirements.txt")
if [[ ! -f $venv/golden.stamp || $(cat "$venv/golden.stamp") != "$want" ]]; then
	"${PYTHON:-python3}" -m venv "$venv"
	if [[ $light == yes ]]; then
		"$venv/bin/pip" install --quiet --no-deps "$(grep '^torch==' "$data/requirements.txt")"
		# These two require torch, and would bring what it requires.
		"$venv/bin/pip" install --quiet --no-deps $(grep '^peft==\|^accelerate==' "$data/requirements.txt")
		grep -v '^torch==\|^peft==\|^accelerate==' "$data/requirements.txt" |
			"$venv/bin/pip" install --quiet -r /dev/stdin typing_extensions sympy networkx fsspec filelock psutil 'setuptools>=77'
		"$venv/bin/python" scripts/torch_stubs.py "$venv"/lib/python3*/site-packages/torch/lib "$venv/stubs"
	else
		"$venv/bin/pip" install --quiet -r "$data/requirements.txt"
	fi
	printf '%s\n' "$want" >"$venv/golden.stamp"
fi

if [[ -d $venv/stubs ]]; then
	LD_LIBRARY_PATH=$(cd "$venv/stubs" && pwd)${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
	export LD_LIBRARY_PATH
fi
# Both decide about bits: the thread count of every library, and hash order.
export OMP_NUM_THREADS=2 MKL_NUM_THREADS=2 PYTHONHASHSEED=0 PYTHONDONTWRITEBYTECODE=1

nice -n 5 "$venv/bin/python" "$data/record_llama.py" --model "$model"
nice -n 5 "$venv/bin/python" "$data/record_families.py"
nice -n 5 "$venv/bin/python" "$data/record_lora.py"
nice -n 5 "$venv/bin/python" "$data/record_media.py"
nice -n 5 "$venv/bin/python" "$data/record_mtp.py"
nice -n 5 "$venv/bin/python" "$data/record_pooling.py"
if [[ $bounds == yes ]]; then
	nice -n 5 "$venv/bin/python" "$data/bounds_llama.py" --model "$model"
fi
git --no-pager diff --stat -- "$data" || true
