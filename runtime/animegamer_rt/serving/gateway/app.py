"""The gateway's routes: the page, `/ws`, `/login`, `/logout`, `/healthz`, `/readyz`, `/metrics`.

All addresses in the page are relative, so it works under any sub-path. WebSocket messages are handled in `bridge`.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from pathlib import Path
from urllib.parse import parse_qs

import zmq
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.websockets import WebSocket, WebSocketState

from .access import COOKIE, LOGIN_S, Access
from .bridge import ServerLink
from .http_server import log, peer_of
from .message_forms import SUBPROTOCOLS
from .metrics import CONTENT_TYPE, GatewayMetrics
from .settings import GatewaySettings
from .visitors import Visitor

MAX_FORM_BYTES = 4096
UNSUPPORTED, TRY_LATER = 1002, 1013
"""WebSocket close codes."""
WRONG = {
    403: "Wrong password · 密码错误 · パスワードが違います",
    429: "Too many wrong passwords: wait a minute · 密码错误太多，请等一分钟 · 一分ほどお待ちください",
}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # without any, a browser's form names no origin either
    "Cache-Control": "no-cache",
}
FOR_EVER = "public, max-age=31536000, immutable"


def page_folder() -> Path:
    """The page's files: in the installed package, or client/web of the checkout."""
    installed = Path(__file__).with_name("page")
    return installed if installed.is_dir() else Path(__file__).parents[4] / "client" / "web"


def make_app(settings: GatewaySettings) -> Starlette:
    """The application of one gateway."""
    metrics, folder = GatewayMetrics(), page_folder()
    access = Access(settings.password, settings.origins, metrics.wrong_passwords.inc)
    link = ServerLink(settings, metrics)
    files = StaticFiles(directory=folder)
    version = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(folder.iterdir()))).hexdigest()[:12]
    """In the addresses of the page's files, which browsers therefore keep."""

    def html(name: str, hidden: str, shown: str, status: int = 200) -> Response:
        text = (folder / name).read_text(encoding="utf-8").replace(hidden, shown)
        return HTMLResponse(re.sub(r'(href|src)="(?=\w+\.)', rf'\1="{version}/', text), status, headers=HEADERS)

    async def page(request: Request) -> Response:
        if not access.host_allowed(request):
            return PlainTextResponse("This host name is not allowed; add it to `origins` of serve --config.\n", 421)
        if not access.knows_password(request):
            return html("login.html", "", "")
        return html("index.html", *(("", "") if access.door is None else ('id="leave" hidden', 'id="leave"')))

    async def file(request: Request) -> Response:
        name = request.path_params["name"]
        if name.endswith(".html"):
            raise HTTPException(404)
        response = await files.get_response(name, request.scope)
        kept = request.url.path.endswith(f"/{version}/{name}")
        response.headers.update(HEADERS | ({"Cache-Control": FOR_EVER} if kept else {}))
        return response

    async def form_of(request: Request) -> bytes:
        body = b""
        try:
            async for part in request.stream():
                body += part
                if len(body) > MAX_FORM_BYTES:
                    raise HTTPException(413, "too large\n")
        except ClientDisconnect as left:
            log.warning("a browser at %s left before its form had arrived", peer_of(request.client) or "this machine")
            raise HTTPException(400, "incomplete\n") from left
        return body

    async def login(request: Request) -> Response:
        if request.method != "POST":  # the page asks whether its login still holds
            return Response(status_code=204 if access.knows_password(request) else 403)
        if not access.origin_allowed(request):  # it would spend its visitor's guesses
            raise HTTPException(403, "another site's page may not log in\n")
        body = await form_of(request)
        [password] = parse_qs(body.decode(errors="replace")).get("password", [""])[:1]
        try:
            status = 303 if access.door is None or access.door.opens(request, password.encode()) else 403
        except HTTPException as too_many:
            status = too_many.status_code
        if status != 303:
            return html("login.html", 'role="alert">', f'role="alert">{WRONG[status]}', status)
        return with_cookie(request, access.log_in(request), LOGIN_S)

    async def logout(request: Request) -> Response:
        login = request.cookies.get(COOKIE, "")
        access.log_out(login)
        link.visitors.log_out(login)
        return with_cookie(request, "", 0)

    def with_cookie(request: Request, value: str, max_age_s: int) -> Response:
        response = RedirectResponse("./", 303)
        secure = request.headers.get("x-forwarded-proto", request.url.scheme) == "https"
        response.set_cookie(COOKIE, value, max_age_s, path=None, httponly=True, samesite="strict", secure=secure)
        return response

    def admitted(browser: WebSocket) -> bool:
        with contextlib.suppress(HTTPException):
            return access.host_allowed(browser) and access.origin_allowed(browser) and access.knows_password(browser)
        return False

    async def web_socket(browser: WebSocket) -> None:
        if not admitted(browser):
            metrics.refused.inc()
            await browser.close()  # before it is accepted: status 403
            return
        form = next((name for name in SUBPROTOCOLS if name in browser.scope["subprotocols"]), None)
        await browser.accept(form)
        visitor = Visitor(browser, peer_of(browser.client), browser.cookies.get(COOKIE, ""))
        code, reason = TRY_LATER, "too many connections"
        if form is None:
            code, reason = UNSUPPORTED, f"request the subprotocol {' or '.join(SUBPROTOCOLS)}"
        elif link.visitors.enter(visitor):
            metrics.connections.set(len(link.visitors))
            try:
                await link.carry(visitor, form)
            except zmq.ZMQError as error:
                log.error("no connection to the server: %s", error)
            finally:
                link.visitors.left(visitor)
                metrics.connections.set(len(link.visitors))
            reason = "somebody else needs this place, or you logged out"
        if (
            browser.application_state is not WebSocketState.DISCONNECTED
            and browser.client_state is WebSocketState.CONNECTED
        ):
            metrics.refused.inc()
            await browser.close(code, reason)

    async def alive(request: Request) -> Response:
        return JSONResponse({"gateway": "ok"})

    async def ready(request: Request) -> Response:
        state = await link.state()
        return JSONResponse({"server": state}, 200 if state == "ready" else 503)

    async def figures(request: Request) -> Response:
        if not (access.host_allowed(request) and access.knows_password(request)):
            raise HTTPException(403, "send Authorization: Bearer PASSWORD\n")
        return Response(metrics.page(), media_type=CONTENT_TYPE)

    app = Starlette(
        middleware=[Middleware(GZipMiddleware)],
        routes=[
            Route("/", page),
            Route("/healthz", alive),
            Route("/readyz", ready),
            Route("/metrics", figures),
            Route("/login", login, methods=["GET", "POST"]),
            Route("/logout", logout, methods=["POST"]),
            WebSocketRoute("/ws", web_socket),
            Route("/{name}", file),
            Route(f"/{version}/{{name}}", file),
        ],
    )
    app.router.redirect_slashes = False  # it would name an address of which a proxy knows nothing
    return app
