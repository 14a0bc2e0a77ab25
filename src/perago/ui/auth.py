"""Access control for the page, and the security headers of its responses.

    bound to loopback        no token, but the Host header must name this machine, which prevents DNS rebinding
    bound to anything else   the printed token, first as ?token=… and then as a cookie, or as a bearer token

Only GET and HEAD are allowed.  Pages run no script except Perago's own file, load nothing from elsewhere, and cannot be
framed by other sites.  A response that sets its own policy (an object from the lake) keeps it.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "frame-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    ]
)
OBJECT_POLICY = "; ".join(
    [
        "sandbox",
        "default-src 'none'",
        "style-src 'unsafe-inline'",
        "img-src data:",
        "font-src data:",
        "frame-ancestors 'self'",
    ]
)
"""Policy for bytes from the lake: no scripts, no forms, and nothing may be loaded, not even from this server."""
_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


def is_loopback(host: str) -> bool:
    """Return whether an address is reachable only from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Guard:
    """Wraps the app with access checks. `token` is None if only this machine can reach the app."""

    def __init__(self, app: ASGIApp, *, host: str, token: str | None) -> None:
        self._app = app
        self._names = _LOOPBACK_NAMES | {host.strip("[]")}
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Reject the request or pass it on, and set the headers of the response."""
        if scope["type"] != "http":
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = self._refusal(scope)
        await (refusal or self._app)(scope, receive, with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if scope["method"] not in ("GET", "HEAD"):
            return _error(405, "this page only shows: GET and HEAD")
        if headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-mode") != "navigate":
            return _error(403, "another site may not ask for this")
        if self._token is None:
            return None if _host_name(headers.get("host", "")) in self._names else _wrong_host_response()
        return self._check_token(scope, headers, self._token)

    def _check_token(self, scope: Scope, headers: Headers, token: str) -> Response | None:
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = [value for name, value in query if name == "token"]
        cookie = f"perago-ui-{(scope.get('server') or ('', 0))[1]}"
        if given:
            if not _tokens_match(given[-1], token):
                return _error(403, "this is not the token: open the address that `perago ui` printed")
            rest = urlencode([(name, value) for name, value in query if name != "token"])
            # Redirect relative to the current path, so that the target cannot name another host.
            answer = RedirectResponse("?" + rest, status_code=303)
            answer.set_cookie(cookie, token, httponly=True, samesite="lax", path="/")
            return answer
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        if _tokens_match(bearer, token) or _tokens_match(_cookie(headers.get("cookie", ""), cookie), token):
            return None
        return _error(403, "a token is needed: open the address that `perago ui` printed")


def _error(status: int, text: str) -> Response:
    return PlainTextResponse(f"{text}\n", status_code=status)


def _wrong_host_response() -> Response:
    return _error(421, "this page is for this machine alone: open it as http://127.0.0.1 with its port")


def _host_name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _tokens_match(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), token.encode())


def _cookie(header: str, name: str) -> str:
    try:
        found = SimpleCookie(header).get(name)
    except CookieError:
        return ""
    return found.value if found is not None else ""
