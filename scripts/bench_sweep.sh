#!/usr/bin/env bash
# `launcher bench` with the real AIPerf over mockers: two sweeps and their comparison, kept in docs/evidence/bench.md.
# Five minutes on 2 idle cores. AIPERF: the program (uv venv /opt/aiperf && uv pip install -p /opt/aiperf aiperf==0.13.0).
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
shape=(--isl 4096 --osl 48 --hit 0.8 --block 64 --limit 32768 --active 16 --shared 1024 --requests 320 --seed 5)
run=(--target h200-agg --engine mocker --set workers.aggregated.count=4 --set simulation.args.speedup-ratio=0.5
    --trace "$work/trace.jsonl" --sweep 8,16 --aiperf "${AIPERF:-/opt/aiperf/bin/aiperf}" --client-processes 1 --warmup 0)
{
    echo '# A sweep with AIPerf, and two compared'
    echo
    echo 'Simulated workers (mockers) behind the real frontend and router; the load is sent by the real AIPerf. The figures show'
    echo 'what the benchmark does, not what a GPU does. Made by `scripts/bench_sweep.sh`.'
    echo
    echo '```'
    echo "\$ launcher trace make ${shape[*]} --out trace.jsonl"
    "$python" -m launcher trace make "${shape[@]}" --out "$work/trace.jsonl"
    echo
    echo '$ launcher bench --target h200-agg --engine mocker --set workers.aggregated.count=4 --trace trace.jsonl --sweep 8,16 --out kv'
    "$python" -m launcher bench "${run[@]}" --out "$work/kv" 2>&1
    echo
    echo '$ launcher bench … --set router.mode=round-robin --out rr'
    "$python" -m launcher bench "${run[@]}" --set router.mode=round-robin --out "$work/rr" 2>/dev/null
    echo
    echo '$ launcher bench --compare rr kv'
    "$python" -m launcher bench --compare "$work/rr" "$work/kv" 2>&1
    echo '```'
} | sed -e "s#$work/##g" -e 's/ *$//' >"$work/bench.md"
mkdir -p docs/evidence
cp "$work/bench.md" docs/evidence/bench.md
cp "$work/kv/report.html" docs/evidence/bench.html
