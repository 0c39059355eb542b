#!/usr/bin/env python3
"""look.py [--width N] [--dark] [--pdf] PAGE OUT: what headless Chromium makes of a page, as a PNG of all of it or as a PDF. It speaks the
DevTools protocol over a pipe, and so needs nothing but Chromium and Python."""

import argparse
import base64
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def chromium():
    """The program, or None."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """A Chromium with one page, for `with`."""

    def __init__(self, program, patience=120):
        self.program, self.patience, self.number, self.rest, self.events = program, patience, 0, b"", []

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="look")
        here_in, there_out = os.pipe()
        there_in, here_out = os.pipe()

        def take_ends():  # the browser reads from 3 and writes to 4
            os.setsid()
            a, b = os.dup(there_in), os.dup(there_out)
            os.dup2(a, 3)
            os.dup2(b, 4)
        self.process = subprocess.Popen(
            [self.program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe", "--no-first-run",
             "--disable-background-networking", "--hide-scrollbars", f"--user-data-dir={self.folder}", "about:blank"],
            preexec_fn=take_ends, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(there_in)
        os.close(there_out)
        self.reads, self.writes, self.session = here_in, here_out, None
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")
        return self

    def __exit__(self, *unused):
        os.close(self.reads)
        os.close(self.writes)
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def hear(self, until):
        """The next message."""
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.reads], [], [], max(0, until - time.monotonic()))
            more = os.read(self.reads, 1 << 20) if ready else b""
            if not more:
                raise RuntimeError("Chromium has ended" if ready else "Chromium does not answer")
            self.rest += more
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def ask(self, method, **params):
        self.number += 1
        question = {"id": self.number, "method": method, "params": params}
        if self.session:
            question["sessionId"] = self.session
        data = json.dumps(question).encode() + b"\0"
        while data:
            data = data[os.write(self.writes, data):]
        until = time.monotonic() + self.patience
        while True:
            message = self.hear(until)
            if message.get("id") == self.number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error'].get('message')}")
                return message["result"]
            self.events.append(message)

    def value(self, expression):
        """Of JavaScript in the page; a promise is waited for."""
        got = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in got:
            raise RuntimeError(got["exceptionDetails"].get("exception", {}).get("description") or got["exceptionDetails"]["text"])
        return got["result"].get("value")

    def open(self, path, width=1200, dark=False):
        self.events = []
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.ask("Page.navigate", url="file://" + os.path.abspath(path))
        until = time.monotonic() + self.patience
        while self.value("document.readyState == 'complete' && (document.documentElement.dataset.drawn || !document.getElementById('data')) && 'yes'") != "yes":
            if time.monotonic() > until:
                raise RuntimeError(f"{path} is not drawn after {self.patience} s")
            time.sleep(0.1)

    def print_media(self, on):
        """The page as it is laid out for print, on A4 with the margins of the style, or as on a screen again."""
        self.ask("Emulation.setDeviceMetricsOverride", width=688 if on else 1200, height=900, deviceScaleFactor=1, mobile=False)
        self.ask("Emulation.setEmulatedMedia", media="print" if on else "")

    def complaints(self):
        """Errors and warnings on the console, and what was asked of a network."""
        self.value("1")
        out = []
        for e in self.events:
            p = e.get("params", {})
            if e.get("method") == "Runtime.exceptionThrown":
                out.append(p["exceptionDetails"].get("exception", {}).get("description") or p["exceptionDetails"].get("text"))
            elif e.get("method") == "Runtime.consoleAPICalled" and p.get("type") in ("error", "warning", "assert"):
                out.append(" ".join(str(a.get("value", a.get("description"))) for a in p.get("args", [])))
            elif e.get("method") == "Log.entryAdded" and p["entry"].get("level") in ("error", "warning"):
                out.append(p["entry"].get("text"))
            elif e.get("method") == "Network.requestWillBeSent" and not p["request"]["url"].startswith(("file:", "data:", "about:", "blob:")):
                out.append("asks a network for " + p["request"]["url"])
        return out

    def picture(self):
        self.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
        got = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True,
                       clip={"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 16000), "scale": 1})
        return base64.b64decode(got["data"])

    def pdf(self):
        return base64.b64decode(self.ask("Page.printToPDF", printBackground=False, preferCSSPageSize=True)["data"])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=1200)
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--pdf", action="store_true")
    parser.add_argument("page")
    parser.add_argument("out")
    arguments = parser.parse_args()
    program = chromium()
    if not program:
        parser.error("there is no Chromium here: apt install chromium, or CHROMIUM=PATH")
    with Browser(program) as browser:
        browser.open(arguments.page, arguments.width, arguments.dark)
        with open(arguments.out, "wb") as file:
            file.write(browser.pdf() if arguments.pdf else browser.picture())
        for line in browser.complaints():
            print(line)


if __name__ == "__main__":
    main()
