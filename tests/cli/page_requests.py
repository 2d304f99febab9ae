#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# page_requests.py <build folder> <number>: sends hostile requests to the page of a run. They must change no bit of the losses,
# take no more than 512 KiB of memory and less than 1 % of the run's processor time, and the page must still answer who knows
# its address. Memory is measured while nobody looks at the page, because it draws longer curves the longer somebody looks.
# Requests with the secret have the same limit of time. The page also stays where it is when the ranks start again.
import ctypes
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

CLIENTS = 16
TICKS = os.sysconf("SC_CLK_TCK")


def fail(sentence):
    sys.exit("FAILED: " + sentence)


def without_huge_pages():
    """Of the process that it is called in, and of those that this one starts: one would count as 2 MiB."""
    PR_SET_THP_DISABLE = 41
    ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)


def start(build, folder, page, more=()):
    words = [os.path.join(build, "ddhost"), "--model", os.path.join(build, "tests", "plugins", "toy.so"), "--nproc", "2",
             "train.steps=1000000000", "monitor.every=100", "checkpoint.on_exit=false", "run.quiet=true",
             "run.dir=" + folder] + (["--page", "127.0.0.1:0"] if page else []) + list(more)
    run = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                           preexec_fn=without_huge_pages)
    if not page:
        return run, None, None
    for line in run.stderr:
        if found := re.search(r"http://127\.0\.0\.1:(\d+)/([0-9a-f]{32})/", line):
            return run, int(found.group(1)), found.group(2)
    fail("the run printed no address of its page")


def stop(run):
    run.send_signal(signal.SIGINT)
    if run.wait(60) != 130:
        fail(f"the run ended with {run.returncode}")


def rows(folder):
    with open(os.path.join(folder, "metrics.jsonl")) as file:
        read = [json.loads(line) for line in file if line.startswith('{"step"')]
    return {row["step"]: (row["loss"], row["grad_norm"]) for row in read if "loss" in row}


def cpu_of(path):  # seconds
    with open(path + "/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def parent_of(name):
    try:
        with open(f"/proc/{name}/stat") as file:
            return int(file.read().rsplit(")", 1)[1].split()[1])
    except OSError:
        return 0  # it has ended


def cpu_of_run(pid):
    total = cpu_of(f"/proc/{pid}")
    for name in filter(str.isdigit, os.listdir("/proc")):
        if parent_of(name) == pid:
            total += cpu_of(f"/proc/{name}")
    return total


def page_thread(pid):
    for _ in range(100):  # it begins a little later than its address is printed
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/comm") as file:
                if file.read().strip() == "page":
                    return f"/proc/{pid}/task/{thread}"
        time.sleep(0.1)
    fail("the launcher has no thread 'page'")


def memory_kib(pid):
    """Without mapped files: whether those are private depends on other processes that map them, such as other tests."""
    with open(f"/proc/{pid}/smaps_rollup") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Anonymous:"))


def connect(port, seconds=5):
    one = socket.socket()
    one.settimeout(seconds)
    one.connect(("127.0.0.1", port))
    return one


def ask(port, text, seconds=5):
    with connect(port, seconds) as one:
        one.sendall(text)
        answer = b""
        while part := one.recv(1 << 16):
            answer += part
    return answer


def get(port, path, host="localhost", method="GET", more=""):
    return f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n".encode()


class Clients:
    """What each kind of request sends; None: the connection stays open, and sends a byte now and then."""

    def __init__(self, port, token):
        self.port, self.statuses, self.lock, self.problems = port, {}, threading.Lock(), 0
        own = f"/{token}/"
        self.kinds = [
            lambda: get(port, "/" + "%032x" % random.getrandbits(128) + "/"),
            lambda: get(port, own, host="evil.example"),
            lambda: get(port, own, host="127.0.0.1.evil.example:80"),
            lambda: get(port, own, method="POST", more="Content-Length: 1000000\r\n") + b"a" * 4000,
            lambda: get(port, "/../../../../etc/passwd"),
            lambda: get(port, own + "../../etc/passwd"),
            lambda: get(port, own + "%2e%2e/%2e%2e/etc/passwd"),
            lambda: get(port, own, more="X: " + "a" * 100_000 + "\r\n"),
            lambda: get(port, own, more="".join(f"X-{i}: {i}\r\n" for i in range(5000))),
            lambda: get(port, "/" + "a" * 50_000),
            lambda: random.randbytes(random.randrange(1, 3000)),
            lambda: b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + random.randbytes(300),
            lambda: b"GET / HTTP/9.9\r\n\r\n" * 50,
            lambda: b"",
            lambda: None,
            lambda: None,
        ]

    def with_secret(self, own):
        self.kinds = [lambda: get(self.port, own), lambda: get(self.port, own + "state?after=0"),
                      lambda: get(self.port, own + "live.js")]
        return self

    def one(self, number, open_ones):
        text = self.kinds[number % len(self.kinds)]()
        try:
            client = connect(self.port)
            if text is None:
                client.sendall(b"GET /")
                open_ones.append(client)
                for slow in list(open_ones):
                    try:
                        slow.send(b"x")
                    except OSError:
                        open_ones.remove(slow)
                while len(open_ones) > 20:
                    open_ones.pop(0).close()
                return
            with client:
                if text:
                    client.sendall(text)
                    status = client.recv(200)[9:12].decode()
                    with self.lock:
                        self.statuses[status] = self.statuses.get(status, 0) + 1
        except OSError:  # it was left, or nobody had time for it
            with self.lock:
                self.problems += 1

    def work(self, numbers):
        open_ones = []
        for number in numbers:
            self.one(number, open_ones)
        for one in open_ones:
            one.close()


def version_of(answer):
    found = re.search(rb"X-Version: (\d+)", answer)
    return int(found.group(1)) if found else 0


def viewer(port, token, seen, stops):
    """Somebody who looks at the page meanwhile."""
    while not stops.is_set():
        try:
            answer = ask(port, get(port, f"/{token}/state?after={seen[-1]}"))
            if answer.startswith(b"HTTP/1.1 200"):
                seen.append(version_of(answer))
        except OSError:
            pass
        time.sleep(1)


def check_time(cpu, of_run, seconds):
    """`seconds`: a run that takes less than one processor counts as one. The rest: what is saved up, and ticks of a clock."""
    if cpu >= 0.01 * max(of_run, seconds) + 0.1:
        fail("the page's thread took 1 % of the run's processor time or more")


def send(clients, number):
    workers = [threading.Thread(target=clients.work, args=(range(i * number // CLIENTS, (i + 1) * number // CLIENTS),))
               for i in range(CLIENTS)]
    for worker in workers:
        worker.start()
    return workers


def flood_with_secret(run, port, token, number):
    thread = page_thread(run.pid)
    cpu, of_run, began = cpu_of(thread), cpu_of_run(run.pid), time.time()
    clients = Clients(port, token).with_secret(f"/{token}/")
    for worker in send(clients, number):
        worker.join()
    cpu, of_run, seconds = cpu_of(thread) - cpu, cpu_of_run(run.pid) - of_run, time.time() - began
    print(f"{number} requests with the secret in {seconds:.1f} s, answers {clients.statuses}, {clients.problems} were left; "
          f"the page's thread took {cpu:.2f} s of the run's {of_run:.1f} s")
    if set(clients.statuses) - {"200", ""} or "200" not in clients.statuses:
        fail("a request with the secret was answered in another way")
    check_time(cpu, of_run, seconds)


def check_refusals(port, token):
    own = f"/{token}/"
    for status, text in {"400": b"GET / HTTP/9.9\r\n\r\n", "403": get(port, own, host="evil.example"),
                         "404": get(port, "/../../etc/passwd"), "405": get(port, own, method="POST"),
                         "431": get(port, own, more="X: " + "a" * 16384)}.items():
        if ask(port, text, 60)[9:12].decode() != status:
            fail(f"a request was not answered with {status}")


def check_answers(clients):
    if not clients.statuses or set(clients.statuses) - {"400", "403", "404", "405", "431", ""}:
        fail("a hostile request was answered in another way")


def flood(run, folder, port, token, number):
    """Hostile requests, and nobody looks at the page."""
    thread = page_thread(run.pid)
    end = time.time() + 60
    while not os.path.exists(os.path.join(folder, "metrics.jsonl")):  # what the start needs is freed by then
        if time.time() > end:
            fail("the run has not begun its steps after a minute")
        time.sleep(0.2)
    time.sleep(1)
    before, cpu, of_run, began = memory_kib(run.pid), cpu_of(thread), cpu_of_run(run.pid), time.time()
    most = [before]
    clients = Clients(port, token)
    workers = send(clients, number)
    while any(worker.is_alive() for worker in workers):
        most.append(memory_kib(run.pid))
        time.sleep(0.1)
    cpu, of_run, seconds = cpu_of(thread) - cpu, cpu_of_run(run.pid) - of_run, time.time() - began
    grew = max(most) - before
    print(f"{number} requests in {seconds:.1f} s, answers {clients.statuses}, {clients.problems} were left; the page's thread "
          f"took {cpu:.2f} s, {100 * cpu / of_run:.2f} % of the run's {of_run:.1f} s; memory grew by {grew} KiB")
    check_answers(clients)
    check_refusals(port, token)
    check_time(cpu, of_run, seconds)
    if grew > 512:
        fail("the requests took more than 512 KiB")


def flood_beside_viewer(run, port, token, number):
    thread = page_thread(run.pid)
    seen, stops = [0], threading.Event()
    watcher = threading.Thread(target=viewer, args=(port, token, seen, stops))
    watcher.start()
    end = time.time() + 60
    while len(seen) < 4 and time.time() < end:  # until the page has drawn a curve some times
        time.sleep(0.2)
    cpu, of_run, began, versions = cpu_of(thread), cpu_of_run(run.pid), time.time(), len(seen)
    clients = Clients(port, token)
    workers = send(clients, number)
    while any(worker.is_alive() for worker in workers):
        time.sleep(0.5)
        if len(seen) == versions and time.time() < began + 120:  # on a slow machine it takes longer
            workers += send(clients, CLIENTS) if not any(worker.is_alive() for worker in workers) else []
    cpu, of_run, seconds = cpu_of(thread) - cpu, cpu_of_run(run.pid) - of_run, time.time() - began
    stops.set()
    watcher.join()
    print(f"{number} requests beside a viewer in {seconds:.1f} s, answers {clients.statuses}, {clients.problems} were left; "
          f"the page's thread took {cpu:.2f} s, {100 * cpu / of_run:.2f} % of the run's {of_run:.1f} s; the viewer saw "
          f"{len(seen) - versions} new states")
    check_answers(clients)
    check_time(cpu, of_run, seconds)
    if len(seen) == versions:
        fail("the viewer saw no new state meanwhile")
    if not ask(port, get(port, f"/{token}/"), 60).startswith(b"HTTP/1.1 200"):
        fail("the page does not answer after the requests")


def check_restart(build, folder):
    run, port, token = start(build, folder, True, ["launch.max_restarts=1", "checkpoint.every=2000"])
    try:
        def wait_for_state(after):
            end = time.time() + 60
            while time.time() < end:
                answer = ask(port, get(port, f"/{token}/state?after={after}"), 20)
                if b"running" in answer and b"<path d=" in answer and b"X-Run: live" in answer:
                    return version_of(answer)
                after = max(after, version_of(answer))
            fail("the page shows no run")
        version = wait_for_state(0)
        rank = next(name for name in filter(str.isdigit, os.listdir("/proc")) if parent_of(name) == run.pid)
        os.kill(int(rank), signal.SIGKILL)
        if not any("restart 1 of 1" in line for line in run.stderr):
            fail("the ranks did not start again")
        if wait_for_state(version) <= version:
            fail("the page shows an older state after the restart")
        stop(run)
    finally:
        run.kill()
    print("the page goes on at its address when the ranks start again")


def main():
    build, number = sys.argv[1], int(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        plain, attacked = os.path.join(folder, "plain"), os.path.join(folder, "attacked")
        run, port, token = start(build, attacked, page=True)
        try:
            flood(run, attacked, port, token, number)
            flood_beside_viewer(run, port, token, number // 4)
            flood_with_secret(run, port, token, number // 10)
            stop(run)
        finally:
            run.kill()
        of_attacked = rows(attacked)
        run, _, _ = start(build, plain, page=False)
        try:
            time.sleep(10)
            stop(run)
        finally:
            run.kill()
        of_plain = rows(plain)
        common = of_plain.keys() & of_attacked.keys()
        if len(common) < 20:
            fail(f"only {len(common)} rows can be compared")
        if any(of_plain[step] != of_attacked[step] for step in common):
            fail("the losses differ from those of a run without a page")
        check_restart(build, os.path.join(folder, "again"))
        print(f"the losses and norms of {len(common)} rows have the same bits as without a page")


main()
