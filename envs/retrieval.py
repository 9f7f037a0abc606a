"""Passage retrieval for SearchQA: BM25 in this process, or the reference's HTTP service, as client and as server.

The protocol is RAGEN's: GET /health -> {status, corpus_size, index_type, index_loaded}; POST /retrieve {query, top_k} ->
{query, method, results: [{id, content, score}], num_results}, errors as {error} with status 400 or 500.
Not for: questions and rewards (`search_qa.py`).
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

from envs.errors import ServiceError, require

MAX_TOP_K = 50
MAX_REQUEST_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class Hit:
    """One retrieved passage; a higher score is a better match, its scale is the method's."""

    id: str
    content: str
    score: float


class Retriever(Protocol):
    """Anything that finds passages."""

    def search(self, query: str, top_k: int) -> list[Hit]:
        """At most `top_k` passages, best first. Raises ServiceError when the service fails."""


class BM25Retriever:
    """Okapi BM25 over passages in memory (`bm25s`, extra `envs`). Passages without a word of the query are left out."""

    def __init__(self, passages: Sequence[str]) -> None:
        self._bm25s = require("bm25s", needed_by="search_qa", extra="envs")
        self.passages = list(passages)
        tokens = self._bm25s.tokenize(self.passages, stopwords="en", show_progress=False)
        if not tokens.vocab:
            raise ValueError("the corpus has no passage with a word to search for")
        self._index = self._bm25s.BM25()
        self._index.index(tokens, show_progress=False)

    def search(self, query: str, top_k: int) -> list[Hit]:
        """See Retriever."""
        tokens = self._bm25s.tokenize([query], stopwords="en", show_progress=False, return_ids=False)
        if not tokens[0]:
            return []
        scores = self._index.get_scores(tokens[0])
        best = sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:top_k]  # ties: by position, everywhere
        return [Hit(f"doc_{i}", self.passages[i], float(scores[i])) for i in best if scores[i] > 0]


class HttpRetriever:
    """Client of a retrieval server such as `http://127.0.0.1:8001`."""

    def __init__(self, url: str, timeout_s: float = 30.0) -> None:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"retriever URL is {url!r}; it starts with http:// or https://")
        self.url, self.timeout_s = url.rstrip("/"), timeout_s

    def health(self) -> dict[str, Any]:
        """The server's own account of its corpus."""
        return self._call("/health", None)

    def search(self, query: str, top_k: int) -> list[Hit]:
        """See Retriever."""
        answer = self._call("/retrieve", {"query": query, "top_k": min(top_k, MAX_TOP_K)})
        try:
            return [Hit(str(hit["id"]), str(hit["content"]), float(hit["score"])) for hit in answer["results"]]
        except (KeyError, TypeError, ValueError) as error:
            raise ServiceError(f"{self.url}/retrieve: unexpected answer {str(answer)[:200]!r}") from error

    def _call(self, path: str, payload: dict[str, Any] | None) -> Any:
        body = None if payload is None else json.dumps(payload).encode()
        request = urllib.request.Request(self.url + path, data=body, headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=self.timeout_s) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                detail = error.read(500).decode(errors="replace")
            raise ServiceError(f"{self.url}{path}: HTTP {error.code}: {detail}") from error
        except (OSError, ValueError) as error:
            raise ServiceError(f"{self.url}{path}: {error}") from error


def make_server(retriever: BM25Retriever, host: str, port: int) -> ThreadingHTTPServer:
    """A server of the protocol above; the caller runs `serve_forever()` and closes it. Port 0 takes a free one."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != "/health":
                return self._reply(404, {"error": f"no {self.path}; there is /health and /retrieve"})
            size = len(retriever.passages)
            self._reply(200, {"status": "healthy", "corpus_size": size, "index_type": "bm25", "index_loaded": True})

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            if self.path != "/retrieve":
                return self._reply(404, {"error": f"no {self.path}; there is /health and /retrieve"})
            if length > MAX_REQUEST_BYTES:
                return self._reply(400, {"error": f"request is longer than {MAX_REQUEST_BYTES} bytes"})
            try:
                request = json.loads(self.rfile.read(length))
                query, top_k = request["query"], int(request.get("top_k", 5))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                return self._reply(400, {"error": f"expected {{query, top_k}}: {error}"})
            if not isinstance(query, str) or not query.strip() or not 1 <= top_k <= MAX_TOP_K:
                return self._reply(400, {"error": f"query must be text and top_k between 1 and {MAX_TOP_K}"})
            hits = [asdict(hit) for hit in retriever.search(query, top_k)]
            self._reply(200, {"query": query, "method": "bm25", "results": hits, "num_results": len(hits)})

        def _reply(self, status: int, payload: dict[str, Any]) -> None:
            body = json.dumps(payload).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """One line per query would drown the terminal; errors are answered to the client."""

    return ThreadingHTTPServer((host, port), Handler)
