"""A small Hugging Face hub on 127.0.0.1, for uploads: it keeps repositories and their files in memory."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

TOKEN = "hf_of_a_test"


@dataclass
class Repository:
    private: bool
    files: dict[str, bytes] = field(default_factory=dict)


@dataclass
class Hub:
    address: str = ""
    repositories: dict[str, Repository] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)  # those that write


def _handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

        def answer(self, status: int, body: Any) -> None:
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def allowed(self) -> bool:
            if self.headers.get("Authorization") == f"Bearer {TOKEN}":
                return True
            self.answer(401, {"error": "Invalid username or password."})
            return False

        def do_GET(self) -> None:
            if self.allowed():
                name = self.path.partition("?")[0].removeprefix("/api/models/")
                found = hub.repositories.get(name.removesuffix("/revision/main"))
                if found is None:
                    self.answer(404, {"error": "Repository not found"})
                else:
                    there = [{"rfilename": file} for file in found.files]
                    self.answer(200, {"id": name, "private": found.private, "siblings": there, "sha": "0" * 40})

        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            path = self.path.partition("?")[0]
            hub.requests.append(path)
            if not self.allowed():
                return
            if path == "/api/repos/create":
                asked = json.loads(content)
                name = f"{asked['organization']}/{asked['name']}"
                status = 409 if name in hub.repositories else 200
                hub.repositories.setdefault(name, Repository(asked.get("visibility") == "private"))
                self.answer(status, {"url": f"{hub.address}/{name}"})
            elif "/preupload/" in path:
                files = [file["path"] for file in json.loads(content)["files"]]
                regular = {"uploadMode": "regular", "shouldIgnore": False, "oid": None}
                self.answer(200, {"files": [{"path": file, **regular} for file in files]})
            elif "/commit/" in path:
                owner, name = path.removeprefix("/api/models/").split("/")[:2]
                for line in map(json.loads, content.splitlines()):
                    if line["key"] == "file":
                        data = base64.b64decode(line["value"]["content"])
                        hub.repositories[f"{owner}/{name}"].files[line["value"]["path"]] = data
                commit = {"commitUrl": f"{hub.address}/{owner}/{name}/commit/{'1' * 40}", "commitOid": "1" * 40}
                self.answer(200, {**commit, "success": True})
            else:  # /api/validate-yaml
                self.answer(200, {"errors": [], "warnings": []})

    return Handler


@contextmanager
def running_hub() -> Iterator[Hub]:
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub))
    hub.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
