#!/bin/sh
# Install a released SGLang into CACHE/sglang-VERSION, a virtual environment of its own, so that it
# can be asked. Does nothing when it is there. About 11 GB and some minutes.
#
#   scripts/install_engine.sh VERSION CACHE [PYTHON]
set -eu
version=${1:?a release such as 0.5.23}
cache=${2:?a folder for engines}
python=${3:-python3}
home=$cache/sglang-$version

# Pinned by some releases to a build that is not published, and only wanted by kernels on a GPU.
unpublished='cuda-tile'

works() {
    "$home/bin/python" -c 'import sglang.srt.server_args' >/dev/null 2>&1
}

if [ -x "$home/bin/python" ] && works; then
    echo "$home/bin/python"
    exit 0
fi
mkdir -p "$cache"
"$python" -m venv "$home"
wheels=$(mktemp -d)
trap 'rm -rf "$wheels"' EXIT INT TERM
# Local folders of wheels may offer a CPU build of torch, which torchvision from the index does not
# fit: take all of them from the index.
export PIP_FIND_LINKS="$wheels"
pip="$home/bin/python -m pip --disable-pip-version-check --quiet"

$pip download --no-deps --dest "$wheels" "sglang==$version"
"$home/bin/python" - "$wheels" "$unpublished" >"$wheels/needs.txt" <<'PROGRAM'
import email
import pathlib
import sys
import zipfile

folder, unpublished = pathlib.Path(sys.argv[1]), sys.argv[2].split()
with zipfile.ZipFile(next(folder.glob("sglang-*.whl"))) as wheel:
    name = next(n for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))
    needs = email.message_from_bytes(wheel.read(name)).get_all("Requires-Dist", [])
for need in needs:
    if not need.startswith(tuple(unpublished)) and "extra ==" not in need:
        print(need)
PROGRAM
$pip install --requirement "$wheels/needs.txt"
$pip install --no-deps "$wheels"/sglang-*.whl
works || {
    "$home/bin/python" -c 'import sglang.srt.server_args' 2>&1 | tail -1 >&2
    echo "$home: SGLang $version is installed but can't be imported" >&2
    exit 1
}
echo "$home/bin/python"
