"""What processes use: memory of Python, of its JVM, and of the JVM once garbage is gone; and the processors."""

import os
import shutil
import subprocess
from pathlib import Path


def resident(pid: int) -> int | None:
    """Megabytes of a process; None if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) // 1024 for line in lines if line.startswith("VmRSS")), None)


def java_of(parent: int) -> int | None:
    """The JVM that a process has started."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name, rest = (folder / "stat").read_text().split("(", 1)[1].rsplit(")", 1)
        except OSError:
            continue
        if name == "java" and int(rest.split()[1]) == parent:
            return int(folder.name)
    return None


def live(java: int | None) -> int | None:
    """Megabytes; listing the classes of a heap collects its garbage first."""
    if java is None or shutil.which("jcmd") is None:
        return None
    command = ["jcmd", str(java), "GC.class_histogram"]
    try:
        text = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout
    except subprocess.TimeoutExpired:
        return None
    total = [line.split() for line in text.splitlines() if line.startswith("Total")]
    return int(total[0][2]) // 1_000_000 if total else None


def busy_seconds() -> float:
    """Of all processors since the machine began, those too that were taken away from it."""
    user, nice, system, _idle, _waiting, *interrupts_and_stolen = (
        Path("/proc/stat").read_text().split("\n")[0].split()[1:9]
    )
    return sum(map(int, (user, nice, system, *interrupts_and_stolen))) / os.sysconf("SC_CLK_TCK")


def seconds_of_session(leader: int) -> float:
    """What the processes of a session have used of the processors, with those that they waited for."""
    ticks = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            told = (folder / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(told[3]) == leader:
            ticks += sum(map(int, told[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")
