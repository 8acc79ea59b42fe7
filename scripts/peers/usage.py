"""What a program and its descendants use, according to the kernel: CPU time and memory.

Everything is of the whole process tree, since some loaders are processes and some are threads.
"""

import os
import threading

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
# From one look at the memory to the next; a look takes a few milliseconds.
LOOK_EVERY_S = 0.5


def processes():
    """This process and all below it."""
    children = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as file:
                parent = int(file.read().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(pid))
        except OSError:
            continue  # it has ended
    found, todo = [], [os.getpid()]
    while todo:
        found.append(todo.pop())
        todo += children.get(found[-1], [])
    return found


def cpu_seconds():
    """Of the process tree, ended children included."""
    ticks = 0
    for pid in processes():
        try:
            with open(f"/proc/{pid}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
        except OSError:
            continue
    return ticks * TICK_S


def busy_seconds():
    """Of all processors, since the machine began."""
    with open("/proc/stat") as file:
        ticks = list(map(int, file.readline().split()[1:9]))
    return (sum(ticks) - ticks[3] - ticks[4]) * TICK_S


def pss_bytes():
    """Memory of the process tree, shared pages divided among those who share them."""
    total = 0
    for pid in processes():
        try:
            with open(f"/proc/{pid}/smaps_rollup") as file:
                lines = [line for line in file if line.startswith("Pss:")]
            total += int(lines[0].split()[1]) * 1024
        except (OSError, IndexError):
            continue
    return total


class Peak(threading.Thread):
    """The most memory that was seen since it was made."""

    def __init__(self):
        super().__init__(daemon=True)
        self.bytes, self.over = pss_bytes(), threading.Event()
        self.start()

    def run(self):
        while not self.over.wait(LOOK_EVERY_S):
            self.bytes = max(self.bytes, pss_bytes())

    def end(self):
        self.over.set()
        self.join()
        return max(self.bytes, pss_bytes())


class Window:
    """CPU time from its creation to its end: our own, and that of others."""

    def __init__(self):
        self.cpu, self.busy = cpu_seconds(), busy_seconds()

    def end(self):
        """Our CPU seconds, and those that others used in the meantime."""
        cpu, busy = cpu_seconds() - self.cpu, busy_seconds() - self.busy
        return cpu, max(0.0, busy - cpu)
