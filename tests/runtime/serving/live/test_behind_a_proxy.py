"""The page at a sub-path of a TLS proxy: a real nginx with the very lines of docs/WEB.md and its own certificate."""

from __future__ import annotations

import http.client
import os
import re
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from browser_socket import MSGPACK, Browser, web
from client.conformance.ports import ReservedPorts
from live_server import LiveServer, frames, until_timeout

NGINX, OPENSSL = (shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin") for name in ("nginx", "openssl"))
WEB_PAGE = Path(__file__).parents[4] / "docs" / "WEB.md"
SITE, ADDRESS = "example.org", "127.0.0.1:8080"
"""As docs/WEB.md has them; the test puts its gateway's own address in place of the second."""
pytestmark = pytest.mark.skipif(not (NGINX and OPENSSL), reason="on Debian: apt-get install nginx-light openssl")


@contextmanager
def _proxy(folder: Path, gateway: str, port: int) -> Iterator[ssl.SSLContext]:
    """nginx at a port before a gateway; the TLS of a browser that trusts its certificate."""
    [location] = re.findall(r"```nginx\n(.*?)```", WEB_PAGE.read_text("utf-8"), re.DOTALL)
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    names = ["-subj", f"/CN={SITE}", "-addext", f"subjectAltName=DNS:{SITE}"]
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-x509", "-days", "2"]
    made = [str(OPENSSL), "req", *kind, *names, "-keyout", key, "-out", certificate]
    subprocess.run(made, check=True, capture_output=True)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    (folder / "nginx.conf").write_text(
        f"daemon off; master_process off; pid {folder}/pid; error_log stderr; events {{}}\nhttp {{\naccess_log off;\n"
        + "".join(f"{one}_temp_path {folder}/{one};\n" for one in kinds)
        + f"server {{ listen 127.0.0.1:{port} ssl; server_name {SITE};\n"
        f"ssl_certificate {certificate}; ssl_certificate_key {key};\n{location.replace(ADDRESS, gateway)}}}\n}}\n"
    )
    command = [str(NGINX), "-p", str(folder), "-c", str(folder / "nginx.conf")]
    with (folder / "nginx.log").open("w") as log, subprocess.Popen(command, stderr=log) as nginx:
        try:
            for _ in until_timeout():
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                assert nginx.poll() is None, (folder / "nginx.log").read_text()
            yield ssl.create_default_context(cafile=certificate)
        finally:
            nginx.terminate()


def test_the_page_and_its_turns_come_through_a_tls_proxy_at_a_sub_path(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("cel and peg\n")
    settings = {"web": "0", "web_password": str(tmp_path / "password"), "origins": [f"https://{SITE}"]}
    settings["trusted_proxies"] = ["127.0.0.1"]
    with LiveServer(bundle, tmp_path / "state", **settings) as server, ReservedPorts() as ports:
        gateway, port = web(server.ready()).split("/")[2], ports.port
        with _proxy(tmp_path, gateway, port) as tls:

            def ask(method: str, path: str, body: str = "", **headers: str) -> tuple[http.client.HTTPResponse, bytes]:
                asked = http.client.HTTPSConnection(SITE, context=tls)
                asked.sock = tls.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname=SITE)
                asked.request(method, path, body, headers)
                answer = asked.getresponse()
                with asked.sock:
                    return answer, answer.read()

            assert b'action="login"' in ask("GET", "/anime/")[1]
            flood = [{"X-Forwarded-For": f"127.0.0.1, 203.0.113.{number % 4}"} for number in range(40)]
            wrong = [ask("POST", "/anime/login", "password=guess", **one)[0].status for one in flood]
            assert wrong.count(403) == 30 and wrong[-1] == 429, "nobody there tries further passwords, and who else may"
            answer, _ = ask("POST", "/anime/login", "password=cel+and+peg")
            assert (answer.status, answer.headers["Location"]) == (303, "./")
            assert "Secure" in answer.headers["Set-Cookie"] and "Path" not in answer.headers["Set-Cookie"]
            cookie = answer.headers["Set-Cookie"].split(";")[0]
            page = ask("GET", "/anime/", Cookie=cookie)[1].decode()
            assets = {*re.findall(r'(?:href|src)="([^"#]+)"', page), "attract.jpg"}
            assert {"page.js", "style.css", "icon.svg"} <= {name.rpartition("/")[2] for name in assets}
            assert {ask("GET", f"/anime/{name}")[0].status for name in assets} == {200}

            headers = {"Cookie": cookie, "Origin": f"https://{SITE}"}
            way = {"sock": socket.create_connection(("127.0.0.1", port)), "ssl": tls, "additional_headers": headers}
            with Browser(f"wss://{SITE}/anime/", MSGPACK, **way) as browser, server.client() as program:
                browser.hello(codec="raw")
                turn = browser.rest(browser.begin(browser.ask("open", {"seed": 5}), "one"))
                assert turn[-1].type == "done"
                assert frames(turn) == frames(program.play(program.open(seed=5)))
