#!/bin/bash
# One call on the GPU machine, beside src.tar.xz of pack.sh:
#   device.sh call SECONDS PART|- STEP...          python -m tests.gpu, in what is left of SECONDS
#   device.sh call SECONDS PART|- multi OPTION...  python -m tests.gpu.multi
# PART is a part of the bundle (../shared/gpu/bundle.py) to unpack first. Nothing is done twice; a part that is missing is
# said at once, since a fresh machine is bare. Results go to $OUT/NAME (NAME=... before the command; default: results).
set -u
began=$(date +%s)
here=$(cd "$(dirname "$0")" && pwd)
export GPU_ROOT=${GPU_ROOT:-/tmp/gpu}
site=${GPU_SITE:-/tmp/site}
parts=2
limit=$2 part=$3
shift 3
mkdir -p $GPU_ROOT $site
spent() { echo $(($(date +%s) - began)); }

if [ "$part" != - ] && [ ! -e "$GPU_ROOT/$(basename "$part").done" ]; then
  for archive in "$part"/*.tar.xz; do
    if command -v xz >/dev/null; then xz -dc "$archive" | tar x -C $site & else
      python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1], "r|xz").extractall(sys.argv[2], filter="tar")' \
        "$archive" $site & fi
  done
  wait
  touch "$GPU_ROOT/$(basename "$part").done"
  echo "unpacked $part after $(spent) s: $(du -sm $site | cut -f1) MB"
fi
rm -rf $GPU_ROOT/src && mkdir -p $GPU_ROOT/src && tar xJf "$here/src.tar.xz" -C $GPU_ROOT/src
[ $# -eq 0 ] && exit 0
have=$(ls $GPU_ROOT/p*.done 2>/dev/null | wc -l)
if [ "$have" -lt $parts ]; then
  echo "MISSING: $have of $parts parts are here ($(ls $GPU_ROOT/p*.done 2>/dev/null | tr '\n' ' ')): send the others first"
  exit 9
fi

export PYTHONPATH=$site PATH=$PATH:/usr/local/cuda/bin
export HF_HUB_OFFLINE=1 TIKTOKEN_ENCODINGS_BASE=$GPU_ROOT/voc
export VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 PYTHONUNBUFFERED=1
cd $GPU_ROOT/src || exit 1
if [ ! -e $GPU_ROOT/staged ]; then
  nvidia-smi --query-gpu=name,memory.total,memory.used,driver_version --format=csv,noheader
  # byte code in the background: the first imports need not wait for all of it
  setsid nohup python3 -m compileall -q -j 12 $site >/dev/null 2>&1 </dev/null &
  python3 -m tests.gpu.stage $GPU_ROOT --vocabulary $site/_model/o200k_base.tiktoken && touch $GPU_ROOT/staged || exit 8
  echo "staged after $(spent) s"
  setsid nohup nice -n 19 python3 -m tests.gpu.prebuild $GPU_ROOT/prebuild.log >/dev/null 2>&1 </dev/null &
fi
out=${OUT:-/tmp/gpu-out}/${NAME:-results}
mkdir -p "$out"
left=$((limit - $(spent)))
if [ "$1" = multi ]; then
  shift
  python3 -m tests.gpu.multi --out "$out" --deadline $left "$@"
else
  python3 -m tests.gpu --out "$out" --deadline $left "$@"
fi
code=$?
cp $GPU_ROOT/prebuild.log "$out/" 2>/dev/null
tail -5 $GPU_ROOT/prebuild.log 2>/dev/null
echo "took $(spent) s, exit $code"
exit $code
