#!/usr/bin/env python3
"""What a benchmark ran on: processor, microcode, kernel level, clock.

    scripts/machine.py          prints the line that heads a benchmark's table
    scripts/machine.py --json   the same as JSON
    scripts/machine.py --into FILE
                                adds it to the JSON object in FILE, as "machine"
    scripts/machine.py --ranges docs/machines
                                a table of the ratios that were kept there, one column a machine

The clock is measured: a chain of additions, one after the other, takes one cycle each. What
/proc/cpuinfo says is, in a virtual machine, often the nominal clock. It is null where memory may
not be executed. The kernel level is the one that the engine chooses, from the same features and
the same switch (BOTHENDS_KERNELS).
"""

import ctypes
import json
import mmap
import os
import platform
import re
import sys
import time
from pathlib import Path

# The features that a level asks for (crates/ops/src/kernels.rs), as Linux names them.
LEVELS = {
    "avx2": "avx2 bmi1 bmi2 fma abm movbe popcnt",
    "avx512": "avx512f avx512bw avx512dq avx512vl avx512vbmi avx512_vbmi2 avx512_vnni",
}
ADDITIONS = 16
ROUNDS = 250_000
# A loop of dependent additions (`add rax, rdx`), counted down from ROUNDS; returns. Of registers:
# Golden Cove adds small constants while it renames registers, several in one cycle.
CODE = {
    "x86_64": b"\xb9" + ROUNDS.to_bytes(4, "little") + ADDITIONS * b"\x48\x01\xd0"
    + b"\xff\xc9" + b"\x0f\x85" + (-(ADDITIONS * 3 + 8)).to_bytes(4, "little", signed=True)
    + b"\xc3",
}


def cpuinfo():
    """The first processor's lines."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return {}
    pairs = (line.split(":", 1) for line in text.split("\n\n")[0].splitlines() if ":" in line)
    return {name.strip(): value.strip() for name, value in pairs}


def kernel_level(info, architecture, wanted):
    """The level's name: the best, or the one wanted if it is there."""
    if architecture == "aarch64":
        levels = ["scalar", "neon"]
    else:
        features, levels = set(info.get("flags", "").split()), ["scalar"]
        for name, needed in LEVELS.items():
            if not set(needed.split()) <= features:
                break
            levels.append(name)
    return wanted if wanted in levels else levels[-1]


def clock_ghz():
    """Cycles per nanosecond, the best of many short trials; None where it cannot be measured."""
    code = CODE.get(platform.machine())
    if code is None:
        return None
    try:
        memory = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    except OSError:
        return None
    memory.write(code)
    count = ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
    best = float("inf")
    for _ in range(50):
        start = time.perf_counter_ns()
        count()
        best = min(best, time.perf_counter_ns() - start)
    return round(ADDITIONS * ROUNDS / best, 2)


def machine():
    """What there is to know about this machine."""
    info = cpuinfo()
    return {
        "processor": info.get("model name") or platform.processor() or platform.machine(),
        "family": info.get("cpu family"),
        "model": info.get("model"),
        "stepping": info.get("stepping"),
        "microcode": info.get("microcode"),
        "is_virtual": "hypervisor" in info.get("flags", "").split(),
        "kernels": kernel_level(info, platform.machine(), os.environ.get("BOTHENDS_KERNELS", "")),
        "clock_ghz": clock_ghz(),
        "cores": len(os.sched_getaffinity(0)),
        "linux": platform.release(),
    }


def head(about):
    """One line for the head of a table."""
    numbers = " ".join(f"{name} {about[name]}" for name in ["family", "model", "stepping"] if about[name])
    clock = "clock unknown" if about["clock_ghz"] is None else f"{about['clock_ghz']} GHz"
    return (f"{about['processor']} ({numbers or 'no numbers'}, microcode {about['microcode']}),"
            f" {clock}, kernels {about['kernels']}, {about['cores']} cores"
            f"{', virtual' if about['is_virtual'] else ''}, Linux {about['linux']}")


def slug(about):
    """A file's name for the machine."""
    words = [about["processor"], *(about[name] or "" for name in ["family", "model"])]
    return "-".join(re.sub(r"[^a-z0-9]+", "-", word.lower()).strip("-") for word in words if word)


def ranges(folder):
    """A Markdown table: each CPU ratio, by machine, and its range."""
    kept = [json.loads(path.read_text()) for path in sorted(Path(folder).glob("*.json"))]
    kept = [result for result in kept if "cpu_ratios" in result]
    names = [result["machine"].get("called") or result["machine"]["processor"] for result in kept]
    print("| CPU time | " + " | ".join(names) + " | range |")
    print("|---|" + "---|" * (len(names) + 1))
    for group, numerics in [("cpu_ratios", "planar"), ("exact_cpu_ratios", "exact")]:
        for name in dict.fromkeys(name for result in kept for name in result.get(group, {})):
            values = [result.get(group, {}).get(name) for result in kept]
            known = [value for value in values if value is not None]
            if known:
                cells = ["–" if value is None else f"{value:.2f}" for value in values]
                span = f"{min(known):.2f} to {max(known):.2f}"
                cells.append(span if len(known) > 1 else "–")
                print(f"| {numerics}, {name} | " + " | ".join(cells) + " |")


def main():
    match sys.argv[1:]:
        case []:
            print(head(machine()))
        case ["--json"]:
            print(json.dumps(machine(), indent=2))
        case ["--into", file]:
            result = json.loads(Path(file).read_text())
            Path(file).write_text(json.dumps({"machine": machine(), **result}, indent=2) + "\n")
        case ["--ranges", folder]:
            ranges(folder)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
