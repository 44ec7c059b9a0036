"""The doctor's checks of a machine with a GPU: each seen to say nothing, and made to object where that can be done.

A case is a change of command line, environment or surroundings (`unshare`, `setpriv`, `ulimit`; as root), and the code
that has to be among the findings. What no command provokes (MIG, mixed products, a broken fabric, an old driver) is not
here.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from tests.gpu.session import ROOT_FOLDER, Deployment, Session
from tests.support.runs import ROOT

AGG, DISAGG = "h200-1gpu-agg", "h200-1gpu-disagg"
DEV = "mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && mknod -m 666 /dev/urandom c 1 9 && "
AT_ONCE = 4


@dataclass(frozen=True)
class Case:
    """One way to make the doctor object."""

    code: str
    target: str = AGG
    options: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    around: str = ""
    """A shell command in which `{}` stands for the doctor's."""
    note: str = ""


def _set(assignment: str) -> tuple[str, str]:
    return ("--set", assignment)


CASES = (
    Case("gpu-none", around=f"unshare -m sh -c '{DEV} mount -t tmpfs none /proc/driver && {{}}'", note="/dev hidden"),
    Case("gpu-count", env={"CUDA_VISIBLE_DEVICES": ""}, note="CUDA_VISIBLE_DEVICES empty"),
    Case("gpu-count", target="h200-agg", note="8 workers"),
    Case("gpu-visible", env={"CUDA_VISIBLE_DEVICES": "0,9"}, note="a GPU that is not here"),
    Case("gpu-kind", target="b200-agg", options=_set("workers.aggregated.count=1"), note="target for B200"),
    Case("gpu-memory", options=_set("hardware.gpu_memory_gib=178")),
    Case("gpu-arch", options=_set('engine.env.TORCH_CUDA_ARCH_LIST="10.0"')),
    Case("gpu-format", options=_set("engine.env.VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8=1")),
    Case("kv-ipc-off", target=DISAGG, options=_set('engine.env.UCX_CUDA_IPC_ENABLE_GET_ZCOPY="off"')),
    Case("kv-peers-hidden", target="h200-disagg", options=_set("engine.env.CUDA_VISIBLE_DEVICES=0")),
    Case("shm-small", around="unshare -m sh -c 'mount -t tmpfs -o size=64m none /dev/shm && {}'", note="64 MiB"),
    Case(
        "memlock-low",
        target=DISAGG,
        around="setpriv --bounding-set -ipc_lock --inh-caps -ipc_lock sh -c 'ulimit -l 64; {}'",
        note="64 KiB, no CAP_IPC_LOCK",
    ),
    Case(
        "capability-missing",
        around="setpriv --bounding-set -ipc_lock,-sys_ptrace --inh-caps -ipc_lock,-sys_ptrace sh -c '{}'",
    ),
    Case("nofile-low", around="sh -c 'ulimit -n 256; {}'"),
    Case("offload-memory", options=_set("kv.offload.bytes_per_rank=1099511627776"), note="1 TiB"),
    Case("loopback-only", note="as the machine is, where it has no other interface"),
    Case("port-privileged", around="setpriv --bounding-set -net_bind_service --inh-caps -net_bind_service sh -c '{}'",
         options=("--http-port", "80")),
    Case("disk-low", around="unshare -m sh -c 'mkdir -p /tmp/tiny && mount -t tmpfs -o size=32m none /tmp/tiny && {}'",
         options=("--cache-dir", "/tmp/tiny/cache")),
    Case("cache-readonly", around="unshare -m sh -c 'mkdir -p /tmp/ro && mount -t tmpfs -o ro none /tmp/ro && {}'",
         options=("--cache-dir", "/tmp/ro/cache")),
    Case("model-missing", env={"HF_HOME": "/tmp/no-such-home"}),
    Case("model-incomplete", note="no weights: the caches of these tests have none"),
    Case("harmony-folder", env={"TIKTOKEN_ENCODINGS_BASE": "/tmp/no-such-folder"}),
)  # fmt: skip


def ask(session: Session, case: Case) -> dict[str, Any]:
    """What the doctor says in one case."""
    told = Deployment(session, "doctor", case.target, *case.options)
    env = {**told.env, **case.env}
    argv = [sys.executable, "-m", "launcher", "doctor", "--target", case.target, *case.options, "--json"]
    command: list[str] | str = argv
    if case.around:
        # Everything in one word of a shell that may itself be quoted: no quotes in the inner command.
        script = ROOT_FOLDER if ROOT_FOLDER.is_dir() else session.out
        path = script / f"doctor-{abs(hash((case.code, case.around, case.options)))}.sh"
        path.write_text("exec " + " ".join("'" + word.replace("'", "'\\''") + "'" for word in argv) + "\n")
        command = case.around.replace("{}", f"sh {path}")
    try:
        done = subprocess.run(
            command, shell=bool(case.around), capture_output=True, text=True, env=env, cwd=ROOT, timeout=60
        )
        report = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return {"code": case.code, "note": case.note, "seen": False, "error": "no answer in 60 s"}
    except ValueError:
        return {
            "code": case.code,
            "note": case.note,
            "seen": False,
            "error": (done.stderr + done.stdout)[-300:],
        }
    found = {each["code"]: each for each in report["findings"]}
    hit = found.get(case.code, {})
    return {
        "code": case.code,
        "note": case.note or " ".join(case.options[-1:]),
        "target": case.target,
        "seen": bool(hit),
        "severity": hit.get("severity"),
        "what": hit.get("what"),
        "exit": done.returncode,
        "others": sorted(set(found) - {case.code}),
    }


def machine(session: Session, result: dict[str, Any]) -> None:
    """What `detect()` makes of the real NVML, and the doctor on the idle machine."""
    from dataclasses import asdict

    from launcher.machine import detect

    here = detect()
    keep = asdict(here, dict_factory=lambda pairs: {key: value for key, value in pairs if key != "probe"})
    keep.pop("probe", None)
    result["detect"] = keep
    rows: list[list[Any]] = [["target", "exit", "errors", "warnings"]]
    for target in (AGG, DISAGG):
        report = Deployment(session, "doctor", target).doctor()
        result[target] = report
        findings = report.get("findings", [])
        for severity in ("error", "warning"):
            report[severity] = [each["code"] for each in findings if each["severity"] == severity]
        rows.append([target, report["exit"], " ".join(report["error"]), " ".join(report["warning"])])
    gpus = [
        f"{gpu.index}: {gpu.product} {gpu.memory_mib} MiB, {gpu.memory_free_mib} free" for gpu in here.gpus
    ]
    rows.append(["machine", "", "; ".join(gpus) or here.gpu_error, f"driver {here.driver_version}"])
    session.table("doctor on the idle machine", rows)


def provoke(session: Session) -> list[dict[str, Any]]:
    """All cases, a few at a time."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(lambda case: ask(session, case), CASES))


class Provoking:
    """All cases beside other work: start it, and collect later."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.found: list[dict[str, Any]] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self.found = provoke(self.session)

    def collect(self, result: dict[str, Any], timeout_s: float = 60.0) -> None:
        """Wait for the rest, and show it."""
        self._thread.join(timeout_s)
        result["provoked"] = self.found
        rows: list[list[Any]] = [["code", "provoked by", "found", "severity", "exit", "what it says"]]
        for each in self.found:
            said = (each.get("what") or each.get("error") or "")[:110].replace("\n", " ")
            mark = "yes" if each["seen"] else "NO"
            rows.append([each["code"], each["note"][:50], mark, each.get("severity"), each.get("exit"), said])
        self.session.table("doctor, made to object", rows)


def held(session: Session, result: dict[str, Any]) -> None:
    """The doctor while another process has the GPU."""
    found = ask(session, Case("gpu-held", note="another process has the GPU"))
    result["held"] = found
    session.table(
        "doctor while the GPU is held",
        [["code", "found", "severity", "exit", "what"],
         [found["code"], found["seen"], found.get("severity"), found.get("exit"), (found.get("what") or "")[:140]]],
    )  # fmt: skip


def step(session: Session, result: dict[str, Any]) -> None:
    """The machine and all cases, alone."""
    machine(session, result)
    Provoking(session).collect(result, 600.0 if session.dry else 120.0)
