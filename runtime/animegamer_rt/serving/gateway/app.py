"""The gateway's routes: the page, `/ws`, `/login`, `/healthz`, `/readyz`, `/metrics`.

All addresses in the page are relative, so it works under any sub-path. WebSocket messages are handled in `bridge`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from .access import COOKIE, Access
from .bridge import ServerLink
from .message_forms import SUBPROTOCOLS
from .metrics import CONTENT_TYPE, GatewayMetrics
from .settings import GatewaySettings

READY_TIMEOUT_S = 2.0
WRONG_PASSWORD_S = 1.0
"""Delay before a wrong password is refused."""
MAX_FORM_BYTES = 4096
UNSUPPORTED, TRY_LATER = 1002, 1013
"""WebSocket close codes."""
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def page_folder() -> Path:
    """The page's files: in the installed package, or client/web of the checkout."""
    installed = Path(__file__).with_name("page")
    return installed if installed.is_dir() else Path(__file__).parents[4] / "client" / "web"


def make_app(settings: GatewaySettings) -> Starlette:
    """The application of one gateway."""
    metrics, access, folder = GatewayMetrics(), Access(settings.password, settings.origins), page_folder()
    link = ServerLink(settings, metrics)
    files = {path.name: path for path in folder.iterdir() if path.suffix != ".md"}

    async def page(request: Request) -> Response:
        if not access.host_allowed(request):
            return PlainTextResponse("This host name is not allowed; add it to `origins` of serve --config.\n", 421)
        if access.guesses(request):
            return await refuse()
        return FileResponse(files["index.html" if access.knows_password(request) else "login.html"], headers=HEADERS)

    async def refuse() -> Response:
        await asyncio.sleep(WRONG_PASSWORD_S)
        return PlainTextResponse("send Authorization: Bearer PASSWORD\n", 403)

    async def file(request: Request) -> Response:
        path = files.get(request.path_params["name"])
        if path is None or path.suffix == ".html":
            return PlainTextResponse("not found\n", 404)
        return FileResponse(path, headers=HEADERS)

    async def login(request: Request) -> Response:
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > MAX_FORM_BYTES:
                return PlainTextResponse("too large\n", 413)
        [password] = parse_qs(body.decode(errors="replace")).get("password", [""])[:1]
        if not access.is_password(password.encode()):
            await asyncio.sleep(WRONG_PASSWORD_S)
            return RedirectResponse("./?wrong", 303)
        response = RedirectResponse("./", 303)
        secure = request.headers.get("x-forwarded-proto", request.url.scheme) == "https"
        response.set_cookie(COOKIE, access.cookie, path=None, httponly=True, samesite="strict", secure=secure)
        return response

    async def web_socket(browser: WebSocket) -> None:
        if not (access.host_allowed(browser) and access.origin_allowed(browser) and access.knows_password(browser)):
            metrics.refused.inc()
            if access.guesses(browser):
                await asyncio.sleep(WRONG_PASSWORD_S)
            await browser.close()  # before it is accepted: status 403
            return
        form = next((name for name in SUBPROTOCOLS if name in browser.scope["subprotocols"]), None)
        await browser.accept(form)
        if form is None:
            metrics.refused.inc()
            await browser.close(UNSUPPORTED, f"request the subprotocol {' or '.join(SUBPROTOCOLS)}")
        elif link.connected >= settings.connections:
            metrics.refused.inc()
            await browser.close(TRY_LATER, "too many connections")
        else:
            await link.carry(browser, form)

    async def alive(request: Request) -> Response:
        return JSONResponse({"gateway": "ok"})

    async def ready(request: Request) -> Response:
        status = await link.status(READY_TIMEOUT_S)
        state = "unreachable" if status is None else str(status["state"])
        return JSONResponse({"server": state}, 200 if state == "ready" else 503)

    async def figures(request: Request) -> Response:
        if not (access.host_allowed(request) and access.knows_password(request)):
            return await refuse()
        return Response(metrics.page(), media_type=CONTENT_TYPE)

    return Starlette(
        routes=[
            Route("/", page),
            Route("/healthz", alive),
            Route("/readyz", ready),
            Route("/metrics", figures),
            Route("/login", login, methods=["POST"]),
            WebSocketRoute("/ws", web_socket),
            Route("/{name}", file),
        ]
    )
