# SPDX-License-Identifier: Apache-2.0
#
# strangers.py ADDRESS:PORT [--connections N] [--processes PID...]: connections to the listener of a run that do not know its
# token (host/launch/cluster/proof.hpp has the messages). Fails if one of them is not sent away, or if one of the processes, or
# of those that they started, takes more than 1 MiB more of memory.
import argparse
import os
import socket
import sys
import time

VERSION = b"ddhost1\n"
HELLO = 40  # bytes: version and random number
PATIENCE = 10  # seconds; the listener's own is 2


def connect(at):
    stranger = socket.create_connection(at, timeout=PATIENCE)
    stranger.settimeout(PATIENCE)
    return stranger


def is_sent_away(stranger):
    """Whether the listener ends the connection, without a welcome."""
    seen = b""
    try:
        while chunk := stranger.recv(4096):
            seen += chunk
    except ConnectionResetError:
        pass
    except TimeoutError:
        return False
    return len(seen) <= HELLO


def claim(version):
    return version + (2).to_bytes(4, "little") + (1).to_bytes(4, "little") + os.urandom(64)


def one_byte_a_second(at):
    stranger = connect(at)
    stranger.settimeout(1)
    for byte in claim(VERSION):
        try:
            stranger.sendall(bytes([byte]))
            while chunk := stranger.recv(4096):
                del chunk
            return True
        except TimeoutError:
            continue
        except OSError:
            return True
    return False


def open_and_leave(at, count):
    """Many connections, up to 200 of them at a time."""
    held = []
    for _ in range(count):
        held.append(connect(at))
        if len(held) == 200:
            for stranger in held:
                stranger.close()
            held.clear()
    for stranger in held:
        stranger.close()
    return True


def rss_bytes(pids):
    """By process, with those that they started."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as file:
                parents[int(name)] = int(file.read().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
    found = set(pids)
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    out = {}
    for pid in found:
        with open(f"/proc/{pid}/statm") as file:
            out[pid] = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("at")
    parser.add_argument("--connections", type=int, default=500)
    parser.add_argument("--processes", type=int, nargs="*", default=[])
    args = parser.parse_args()
    host, port = args.at.rsplit(":", 1)
    at = (host.strip("[]"), int(port))
    before = rss_bytes(args.processes)

    def says(data):
        stranger = connect(at)
        stranger.sendall(data)
        return is_sent_away(stranger)

    tries = {
        "garbage": lambda: says(os.urandom(4096)),
        "half a greeting": lambda: says(VERSION[:4]),
        "a wrong token": lambda: says(claim(VERSION)),
        "an old version": lambda: says(claim(b"ddhost0\n")),
        "one byte a second": lambda: one_byte_a_second(at),
        f"{args.connections} connections": lambda: open_and_leave(at, args.connections),
        "a wrong token after them": lambda: says(claim(VERSION)),
    }
    for name, attempt in tries.items():
        began = time.monotonic()
        if not attempt():
            sys.exit(f"FAILED: {name}: the stranger was not sent away")
        print(f"{name}: {time.monotonic() - began:.1f} s")
    after = rss_bytes(args.processes)
    for pid, taken in before.items():
        grown = after.get(pid, 0) - taken
        print(f"process {pid}: {grown} bytes more")
        if grown > 2**20:
            sys.exit(f"FAILED: process {pid} takes {grown} bytes more")


main()
