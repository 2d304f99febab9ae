# SPDX-License-Identifier: Apache-2.0
"""widths.py <build folder>: what commands print fits terminals of 40 to 200 columns, and a dumb or colourless one gets plain text."""
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios

BUILD = sys.argv[1]
PROGRAM, TOY = f"{BUILD}/ddhost", f"{BUILD}/tests/plugins/toy.so"


def printed(columns, words, **variables):
    """What a terminal of that width receives."""
    pid, fd = pty.fork()
    if pid == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
        os.execve(PROGRAM, [PROGRAM, *words], {**os.environ, "TERM": "xterm", **variables})
    out = b""
    while True:
        try:
            part = os.read(fd, 65536)
        except OSError:
            break
        if not part:
            break
        out += part
    os.waitpid(pid, 0)
    return out.decode(errors="replace")


def require(holds, what):
    if not holds:
        sys.exit(f"FAILED: {what}")


with tempfile.TemporaryDirectory() as folder:
    for name, strategy in (("first", "ddp"), ("second", "zero3")):
        subprocess.run([PROGRAM, "--model", TOY, "--nproc", "4", "--strategy", strategy, "train.steps=6", "run.quiet=true",
                        f"run.dir={folder}/{name}"], check=True, stdout=subprocess.DEVNULL)
    commands = [["runs", "ls", folder], ["runs", "show", f"{folder}/first"], ["runs", "diff", f"{folder}/first", f"{folder}/second"],
                ["plan", "--model", TOY, "--nproc", "4", "--all-strategies"], ["inspect", "zero1"], ["list"],
                ["explain", "train.recompute"], ["explain", "zero3_offload"], ["runs", "tail", f"{folder}/first"]]
    for columns in (40, 60, 80, 120, 200):
        for words in commands:
            text = printed(columns, words).replace("\r", "")
            require(len(text) > 100, f"{words} prints {text!r}")
            for line in text.split("\n"):
                # A word stays whole, so that a path can be copied; explain and inspect divide the names of options.
                is_word = len(line.split()) == 1 and ("/" in line or words[0] not in ("explain", "inspect"))
                require(len(line) <= columns or is_word, f"{words} at {columns} columns prints {len(line)}: {line!r}")
    # A serial line knows no width.
    text = printed(0, ["runs", "ls", folder], COLUMNS="50").replace("\r", "")
    require(max(map(len, text.split("\n"))) <= 50, f"COLUMNS of a terminal without a width is not taken: {text!r}")
    wide = subprocess.run([PROGRAM, "runs", "show", f"{folder}/first"], check=True, capture_output=True, text=True).stdout
    require(max(map(len, wide.split("\n"))) > 100, "a file has all columns of a table side by side")
    train = ["--model", TOY, "train.steps=300", f"run.dir={folder}/plain"]
    dumb = printed(80, train, TERM="dumb")
    require("\x1b" not in dumb, f"control characters on a dumb terminal: {dumb!r}")
    require("step 300/300" in dumb, f"no line of progress on a dumb terminal: {dumb!r}")
    plain = printed(80, [*train[:-1], f"run.dir={folder}/colourless"], NO_COLOR="1")
    require(not re.search(r"\x1b\[[0-9;]*m", plain), f"colours with NO_COLOR: {plain!r}")
print("all that is printed fits")
