"""The one page that is made here and not in the browser: it asks for the token, and gives the browser a session for it."""

from __future__ import annotations

from html import escape
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from servemark.base.messages import text
from servemark.web.guard import COOKIE, LOGIN, SESSION_S, Sessions
from servemark.web.problems import Problem

MAX_BODY = 4096


def login_page(lang: str, goal: str, *, wrong: bool = False) -> Response:
    """401 with a form. `goal` is the address that was asked for."""
    said = f'<p role="alert" class="wrong">{escape(text("serve.login.wrong", lang))}</p>' if wrong else ""
    html = f"""<!doctype html>
<html lang="{"zh-CN" if lang == "zh" else escape(lang)}">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>servemark</title>
<link rel="icon" href="/static/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/static/style.css"><link rel="stylesheet" href="/static/login.css"></head>
<body><main class="login"><form method="post" action="{LOGIN}">
<h1 class="brand"><span class="logo" aria-hidden="true"></span>servemark</h1>
<p>{escape(text("serve.login.why", lang))}</p>{said}
<input type="hidden" name="next" value="{escape(own_path(goal))}">
<label>{escape(text("serve.login.token", lang))}
<input type="password" name="token" autocomplete="current-password" required autofocus></label>
<button>{escape(text("serve.login.enter", lang))}</button>
</form></main></body></html>"""
    headers = {"cache-control": "no-store", "www-authenticate": 'Bearer realm="servemark"'}
    return HTMLResponse(html, 401, headers)


def own_path(goal: str) -> str:
    """An address of this server, whatever was asked for: a path that no browser takes for another host."""
    safe = (
        goal.startswith("/") and not goal.startswith(("//", "/\\")) and goal.isascii() and goal.isprintable()
    )
    return goal if safe and len(goal) < MAX_BODY // 2 else "/"


async def log_in(request: Request, sessions: Sessions | None, lang: str) -> Response:
    """POST /session: a form with `token` and `next`."""
    body = b""
    async for block in request.stream():
        body += block
        if len(body) > MAX_BODY:
            raise Problem(413, "serve.login.large", limit=MAX_BODY)
    fields = parse_qs(body.decode("utf-8", "replace"), max_num_fields=8)
    goal = own_path(fields.get("next", ["/"])[0])
    if sessions is not None and not sessions.is_token(fields.get("token", [""])[0].strip()):
        return login_page(lang, goal, wrong=True)
    response = RedirectResponse(goal, 303, {"cache-control": "no-store"})
    if sessions is not None:
        give_cookie(request, response, sessions)
    return response


def give_cookie(request: Request, response: Response, sessions: Sessions) -> None:
    """The session's cookie: for this site alone, out of reach of scripts."""
    secure = request.url.scheme == "https"
    response.set_cookie(COOKIE, sessions.make(), SESSION_S, httponly=True, samesite="strict", secure=secure)
