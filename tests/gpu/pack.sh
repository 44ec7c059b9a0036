#!/bin/sh
# Lay a frozen copy of the repository into FOLDER, for a GPU machine: sh tests/gpu/pack.sh FOLDER [COMMIT]
# What others edit meanwhile does not travel with it; WORKTREE as COMMIT takes the files as they are. PYTHON must have the
# launcher's dependencies. Nothing is left in FOLDER where one of the deployments would not start.
set -eu
folder=$1 commit=${2:-HEAD}
root=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$folder"
cp "$root/tests/gpu/device.sh" "$folder/"
cd "$root"
set -- launcher configs/targets tests/gpu tests/support pyproject.toml
if [ "$commit" = WORKTREE ]; then
  tar cJf "$folder/src.tar.xz" --exclude=__pycache__ "$@"
  echo worktree > "$folder/COMMIT"
else
  git archive "$commit" "$@" | xz -9 > "$folder/src.tar.xz"
  git rev-parse "$commit" > "$folder/COMMIT"
fi
# What travels must work as it is: from a folder of its own, every deployment planned once.
trial=$(mktemp -d)
trap 'rm -rf "$trial"' EXIT
tar xJf "$folder/src.tar.xz" -C "$trial"
(cd "$trial" && "${PYTHON:-python3}" -m tests.gpu.preflight) || { rm "$folder/src.tar.xz"; exit 1; }
du -k "$folder"
