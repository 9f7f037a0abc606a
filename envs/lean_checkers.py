"""Who checks a Lean 4 file: a Kimina Lean server over HTTP, or `lake` in a local project. Not for what a verdict earns (`lean.py`).

The third one, the checker that needs no installation of Lean, is `lean_embedded.py`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from envs.errors import ServiceError

API_KEY_VARIABLE = "LEAN_SERVER_API_KEY"


@dataclass(frozen=True, slots=True)
class Message:
    """One message of Lean. `severity` is error, warning or information; `line` counts from 1."""

    severity: str
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Report:
    """What Lean said about a file."""

    messages: tuple[Message, ...] = ()
    has_sorry: bool = False
    timed_out: bool = False


class Checker(Protocol):
    """Anything that runs Lean on a file's text."""

    def check(self, code: str) -> Report:
        """Lean's report on `code`. Raises ServiceError when Lean could not be run, which says nothing about `code`."""


class KiminaChecker:
    """Client of a Kimina Lean server (project-numina/kimina-lean-server), such as `http://127.0.0.1:8000`.

    POST /api/check {snippets: [{id, code}], timeout, reuse} -> {results: [{id, time, error?, response?}]}, response being
    {messages, sorries} or {message}. The key, if the server wants one, is read from the variable LEAN_SERVER_API_KEY.
    A server without a free REPL answers 429 and is asked again, `n_tries` times in all.
    """

    def __init__(self, url: str, timeout_s: float, *, n_tries: int = 4, wait_s: float = 1.0) -> None:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"url is {url!r}; a Kimina Lean server's starts with http:// or https://")
        self.url, self.timeout_s, self.n_tries, self.wait_s = url.rstrip("/"), timeout_s, n_tries, wait_s

    def check(self, code: str) -> Report:
        """See Checker."""
        name = f"ragen-diag-{uuid.uuid4().hex[:12]}"
        payload = {"snippets": [{"id": name, "code": code}], "timeout": round(self.timeout_s), "reuse": True}
        answer = self._post("/api/check", payload)
        try:
            result = next(result for result in answer["results"] if result["id"] == name)
            error, response = result.get("error"), result.get("response") or {}
            if error is not None and "timed out" in error:
                return Report(timed_out=True)
            if error is not None or "message" in response:
                raise ServiceError(f"{self.url}/api/check: {error or response['message']}")
            messages = tuple(_message_of(message) for message in response.get("messages") or ())
        except (KeyError, TypeError, StopIteration) as error:
            raise ServiceError(f"{self.url}/api/check: unexpected answer {str(answer)[:200]!r}") from error
        return Report(messages, has_sorry=bool(response.get("sorries")) or _says_sorry(messages))

    def _post(self, path: str, payload: dict[str, Any]) -> Any:
        headers = {"Content-Type": "application/json"}
        if key := os.environ.get(API_KEY_VARIABLE):
            headers["Authorization"] = f"Bearer {key}"
        request = urllib.request.Request(self.url + path, data=json.dumps(payload).encode(), headers=headers)
        for attempt in range(self.n_tries):
            try:
                with urllib.request.urlopen(request, timeout=self.timeout_s + 30) as response:
                    return json.load(response)
            except urllib.error.HTTPError as error:
                with error:
                    detail = error.read(500).decode(errors="replace")
                if error.code != 429 or attempt == self.n_tries - 1:
                    raise ServiceError(f"{self.url}{path}: HTTP {error.code}: {detail}") from error
                time.sleep(self.wait_s * 2**attempt)
            except (OSError, ValueError) as error:
                raise ServiceError(f"{self.url}{path}: {error}") from error
        raise AssertionError("n_tries is at least 1")


class LakeChecker:
    """`lake env lean` in a project on this machine, which brings Mathlib if the project does."""

    def __init__(self, project: str, timeout_s: float, *, lake: str = "lake") -> None:
        if not any((Path(project) / name).is_file() for name in ("lakefile.lean", "lakefile.toml")):
            raise ValueError(
                f"project {project!r} has no lakefile.lean or lakefile.toml; it is the folder of a Lake project"
            )
        self.project, self.timeout_s, self.lake = Path(project), timeout_s, lake

    def check(self, code: str) -> Report:
        """See Checker."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "Proof.lean")
            file.write_text(code, encoding="utf-8")
            try:
                process = subprocess.Popen(
                    [self.lake, "env", "lean", "--json", str(file)],
                    cwd=self.project, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                raise ServiceError(f"{self.lake} does not start: {error}. Try: install Lean with elan") from error
            try:
                out, err = process.communicate(timeout=self.timeout_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                return Report(timed_out=True)
        return report_of_output(out, err, process.returncode)


def report_of_output(out: str, err: str, exit_code: int) -> Report:
    """The report in the output of `lean --json`. Raises ServiceError if Lean ended in another way than with a verdict."""
    lines = [line for line in out.splitlines() if line.startswith("{")]
    messages = tuple(_message_of(json.loads(line)) for line in lines)
    if exit_code not in (0, 1) or (exit_code == 1 and not any(m.severity == "error" for m in messages)):
        raise ServiceError(f"lean ended with {exit_code}: {(err or out).strip()[-300:]}")
    return Report(messages, has_sorry=_says_sorry(messages))


def _message_of(message: Mapping[str, Any]) -> Message:
    severity = "information" if message["severity"] == "info" else message["severity"]
    return Message(severity, str(message["data"]), int(message["pos"]["line"]))


def _says_sorry(messages: tuple[Message, ...]) -> bool:
    return any("declaration uses" in message.text and "sorry" in message.text for message in messages)
