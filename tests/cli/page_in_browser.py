#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# page_in_browser.py <build folder> [picture.png]: opens the page of a run that is going on in headless Chromium, and then
# the report that the run leaves. A curve must be drawn, new points must arrive without a reload, and after the end the page
# must say so and keep its last state. Texts of the run must not become elements. Exit code 77: no Chromium.
import base64
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time


def fail(sentence):
    sys.exit("FAILED: " + sentence)


class Browser:
    """Chromium, told what to do over a pipe: JSON messages that end with a NUL."""

    def __init__(self, program, profile):
        to_browser, to_browser_end = os.pipe()
        from_browser_end, from_browser = os.pipe()
        words = [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-extensions",
                 "--user-data-dir=" + profile, "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
                 "--remote-debugging-pipe", "about:blank"]
        self.process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{to_browser} 4>&{from_browser}', "bash", *words],
            pass_fds=(to_browser, from_browser), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.out, self.into = open(to_browser_end, "wb", buffering=0), open(from_browser_end, "rb", buffering=0)
        self.rest, self.count, self.session, self.errors = b"", 0, None, []

    def message(self):
        while b"\0" not in self.rest:
            part = self.into.read(1 << 16)
            if not part:
                fail("Chromium has ended")
            self.rest += part
        one, self.rest = self.rest.split(b"\0", 1)
        one = json.loads(one)
        if one.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
            self.errors.append(json.dumps(one["params"])[:600])
        return one

    def call(self, method, **params):
        self.count += 1
        order = {"id": self.count, "method": method, "params": params}
        if self.session:
            order["sessionId"] = self.session
        self.out.write(json.dumps(order).encode() + b"\0")
        while True:
            answer = self.message()
            if answer.get("id") == self.count:
                if "error" in answer:
                    fail(f"{method}: {answer['error']}")
                return answer["result"]

    def open(self, url):
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Runtime", "Log", "Page"):
            self.call(domain + ".enable")
        self.call("Emulation.setDeviceMetricsOverride", width=1240, height=1000, deviceScaleFactor=1, mobile=False)
        self.call("Page.navigate", url=url)

    def value(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in result:
            fail(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait_for(self, expression, what, seconds=90):
        end = time.time() + seconds
        while time.time() < end:
            if value := self.value(expression):
                return value
            time.sleep(0.2)
        fail(f"{what}: {expression} did not become true; the page says: {self.value('document.body.innerText')[:2000]}")


def start(build, folder):
    toy = os.path.join(build, "tests", "plugins", "toy.so")
    run = subprocess.Popen(
        [os.path.join(build, "ddhost"), "--model", toy, "--nproc", "2", "--page", "127.0.0.1:0", "train.steps=100000000",
         "train.eval_every=20000", "monitor.every=500", "checkpoint.every=5000", "run.quiet=true", "run.dir=" + folder],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    for line in run.stderr:
        if found := re.search(r"http://127\.0\.0\.1:\d+/[0-9a-f]{32}/", line):
            return run, found.group()
    fail("the run printed no address of its page")


DRAWN = "[...document.querySelectorAll('svg path')].some(one => one.getBBox().width > 100 && one.getBBox().height > 5)"


def check_live(browser, run, url, picture):
    browser.open(url)
    browser.wait_for("document.getElementById('link') && document.getElementById('link').className === '' && " + DRAWN,
                     "no curve is drawn")
    browser.value("window.mark = 1")
    curve = "document.querySelector('svg path').getAttribute('d')"
    step = "Number(/steps\\s+(\\d+)/.exec(document.body.innerText)[1])"
    for i in range(3):  # new points arrive
        old, last = browser.value(curve), browser.value(step)
        browser.wait_for(f"{curve} !== {json.dumps(old)} && {step} > {last}", "no new points arrived")
    for what, expression in {"a reload": "window.mark === 1", "the bars of memory": "document.querySelectorAll('rect[fill=\"#2563c9\"]').length > 3",
                             "a row for each rank": "[...document.querySelectorAll('tr')].filter(one => /^[01]\\t/.test(one.innerText)).length === 2",
                             "a checkpoint": "document.body.innerText.includes('step-')",
                             "a running run": "document.querySelector('.state').innerText === 'running'"}.items():
        browser.wait_for(expression, what)
    if browser.value("document.querySelectorAll('#run i, #run img, #run script').length") != 0:
        fail("a text of the run became an element")
    if "<i>" not in browser.value("document.querySelector('h1').innerText"):
        fail("the name of the run is not shown")
    if picture:
        shot = browser.call("Page.captureScreenshot", format="png", clip={"x": 0, "y": 0, "width": 1240, "height": 1000, "scale": 1})
        open(picture, "wb").write(base64.b64decode(shot["data"]))
    run.send_signal(signal.SIGINT)
    browser.wait_for("document.getElementById('link').innerText.includes('The run has ended')", "the end is not shown")
    run.wait(60)
    browser.wait_for("document.querySelector('.state').innerText === 'stopped'", "the last state is not kept")
    if not browser.value(DRAWN):
        fail("the curve is gone after the end")


def main():
    build, picture = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if not program:
        print("skipped: no Chromium is installed (apt-get install chromium)")
        sys.exit(77)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        name = os.path.join(folder, "gpt <i>tiny & more")
        run, url = start(build, name)
        browser = Browser(program, os.path.join(folder, "profile"))
        try:
            check_live(browser, run, url, picture)
            browser.errors = [one for one in browser.errors if "ERR_CONNECTION" not in one]  # after the end
            browser.open("file://" + name.replace(" ", "%20") + "/report.html")
            browser.wait_for(DRAWN, "no curve is drawn in report.html")
            if browser.errors:
                fail("errors in the console: " + "\n".join(browser.errors))
        finally:
            run.kill()
            browser.process.kill()
    print("the live page and report.html were drawn by Chromium")


main()
