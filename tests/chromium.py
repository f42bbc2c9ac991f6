"""A real headless Chromium, driven over a pipe by the DevTools protocol with nothing but the standard library."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import time
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars",
    "--remote-debugging-pipe",
)  # fmt: skip
PATIENCE = 60.0
"""Seconds to wait for any one answer; a busy machine takes its time."""


def find_chromium() -> str | None:
    return next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
    )


class Browser:
    """One browser with one page. Everything it was told by the page is kept in `events`."""

    def __init__(self, program: str, profile: Path) -> None:
        into_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        # The protocol wants 3 and 4; ours might have those numbers already, so they move out of the way first.
        theirs = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 20) for fd in (into_browser, from_browser)]
        silent = os.open(os.devnull, os.O_RDWR)
        places = [(theirs[0], 3), (theirs[1], 4), (silent, 1), (silent, 2)]
        moves = [(os.POSIX_SPAWN_DUP2, here, there) for here, there in places]
        words = [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        self._process = os.posix_spawn(program, words, dict(os.environ), file_actions=moves, setsid=True)
        for fd in (into_browser, from_browser, silent, *theirs):
            os.close(fd)
        self.events: list[dict[str, Any]] = []
        self._pending = b""
        self._number = 0
        self._session: str | None = None
        target = next(one for one in self.call("Target.getTargets")["targetInfos"] if one["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return dict(answer["result"])
            self.events.append(answer)

    def _next(self) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self._pending:
            ready, _, _ = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            read = os.read(self._in, 1 << 20) if ready else b""
            if not read:
                raise TimeoutError("the browser does not answer")
            self._pending += read
        message, self._pending = self._pending.split(b"\0", 1)
        return dict(json.loads(message))

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression in the page; promises are awaited."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def open(self, path: Path, *, width: int = 1440, height: int = 900, dark: bool = False) -> None:
        """The page from disk, once all its charts are drawn."""
        self.look(width, height, dark=dark)
        self.call("Page.navigate", url=path.resolve().as_uri())
        deadline = time.monotonic() + PATIENCE
        while not self.run("document.readyState === 'complete' && document.documentElement.dataset.ready === 'yes'"):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{path.name} is not drawn; {self.complaints()}")
            time.sleep(0.05)

    def look(self, width: int, height: int, *, dark: bool = False) -> None:
        phone = width < 600
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def press(self, key: str, code: int = 0) -> None:
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def hover(self, x: float, y: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, selector: str) -> None:
        """As a hand does it, in the middle of the element."""
        element = f"document.querySelector({json.dumps(selector)})"
        self.run(f"{element}.scrollIntoView({{block: 'center'}})")
        x, y = self.run(f"(b => [b.left + b.width / 2, b.top + b.height / 2])({element}.getBoundingClientRect())")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def screenshot(self, path: Path, *, whole: bool = False) -> Path:
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))
        return path

    def complaints(self) -> list[str]:
        """Errors and warnings on the console, and scripts that failed."""
        self.run("0")  # everything said before this answer has arrived with it
        found = []
        for event in self.events:
            kind, told = event.get("method"), event.get("params", {})
            if kind == "Runtime.exceptionThrown":
                found.append(str(told["exceptionDetails"]))
            elif kind == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
                found.append(str(told["args"]))
            elif kind == "Log.entryAdded":
                found.append(told["entry"]["text"])
        return found

    def requests(self) -> list[str]:
        """Every address the page asked for, itself and what is written inside it left out."""
        self.run("0")
        sent = [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]
        return [url for url in sent if not url.startswith("data:")]

    def close(self) -> None:
        for fd in (self._out, self._in):
            os.close(fd)
        deadline = time.monotonic() + 10
        while os.waitpid(self._process, os.WNOHANG)[0] == 0:
            if time.monotonic() > deadline:
                os.killpg(self._process, signal.SIGKILL)
                os.waitpid(self._process, 0)
                return
            time.sleep(0.05)
