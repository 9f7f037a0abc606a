"""A server that speaks the Kimina Lean server's protocol, backed by the embedded checker. For tests.

As read from project-numina/kimina-lean-server: POST /api/check, absent fields for null ones, errors with HTTP 200 for what
went wrong in a REPL, 401 without the key, 422 for a body of another shape, 429 without a free REPL.
"""

from contextlib import contextmanager

from tests.json_server import JsonHandler, address, serving


@contextmanager
def kimina_server(check, *, key=None, busy_answers=0, error=None):
    """Yields (url, requests). check: text -> Report; error: answered for every snippet instead of a check."""
    requests, left = [], [busy_answers]

    class Handler(JsonHandler):
        def do_POST(self):
            body = self.body()
            requests.append(body)
            if self.path != "/api/check":
                return self.reply(404, {"detail": "Not Found"})
            if key is not None and self.headers.get("Authorization") != f"Bearer {key}":
                return self.reply(401, {"detail": "Invalid or missing API key"})
            if set(body) - {"snippets", "timeout", "debug", "reuse", "infotree"} or not isinstance(
                body["timeout"], int
            ):
                return self.reply(422, {"detail": "unprocessable"})
            if left[0] > 0:
                left[0] -= 1
                return self.reply(429, {"detail": "No available REPLs"})
            self.reply(200, {"results": [self.result(snippet) for snippet in body["snippets"]]})

        def result(self, snippet):
            if error is not None:
                return {"id": snippet["id"], "time": 0.1, "error": error}
            lines = [
                line for line in snippet["code"].splitlines() if not line.startswith(("import", "open", "set_option"))
            ]
            report = check("\n".join(lines))
            if report.timed_out:
                return {"id": snippet["id"], "time": 1.0, "error": "Lean REPL command timed out in 1 seconds"}
            messages = [
                {
                    "severity": {"information": "info"}.get(message.severity, message.severity),
                    "pos": {"line": message.line, "column": 0},
                    "endPos": {"line": message.line, "column": 1},
                    "data": message.text,
                }
                for message in report.messages
            ]
            sorries = [{"pos": {"line": 1, "column": 0}, "goal": "⊢ p", "proofState": 0}] if report.has_sorry else None
            response = {"env": 0, "messages": messages, "sorries": sorries}
            return {
                "id": snippet["id"],
                "time": 0.05,
                "response": {name: value for name, value in response.items() if value},
                "diagnostics": {"repl_uuid": "00000000-0000-0000-0000-000000000000", "cpu_max": 1.0, "memory_max": 1.0},
            }

    with serving(Handler) as server:
        yield address(server), requests
