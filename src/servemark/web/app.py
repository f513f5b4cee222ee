"""The application: pages, their files and the JSON interface, behind one guard."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from functools import lru_cache

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute
from starlette.routing import Route as Path
from starlette.types import Receive, Scope, Send

from servemark.base.messages import LANGUAGES
from servemark.web.answer import Answers
from servemark.web.api.base import PREFIX, Route, full_path
from servemark.web.api.registry import ROUTES
from servemark.web.guard import LOGIN, Guard, Rules, Sessions, knows_token
from servemark.web.login import log_in, login_page
from servemark.web.problems import MEDIA, Problem, problem_body
from servemark.web.reply_cache import Finished
from servemark.web.site import Site
from servemark.web.static_files import StaticFile, StaticFiles
from servemark.web.uploads import Uploads

PAGES = ("front", "compare", "history", "cost", "sweeps", "health", "changelog", "reliability", "metrics")
_FOREVER = "public, max-age=31536000, immutable"
_ASK_AGAIN = "no-cache"


def language_of(headers: Mapping[str, str], default: str) -> str:
    """The first language of Accept-Language that there are texts in."""
    for part in headers.get("accept-language", "")[:200].split(","):
        name = part.partition(";")[0].strip().lower()[:2]
        if name in LANGUAGES:
            return name
    return default


def respond(
    request: Request, plain: Callable[[], bytes], packed: bytes | None, headers: dict[str, str]
) -> Response:
    """200 with the form that the client takes, or 304 when it has this very thing."""
    etag = headers.get("etag")
    if etag and has(request.headers.get("if-none-match", ""), etag):
        return Response(status_code=304, headers=headers)
    if packed is not None and takes_gzip(request.headers.get("accept-encoding", "")):
        return Response(packed, headers={**headers, "content-encoding": "gzip"})
    return Response(plain(), headers=headers)


def file_response(request: Request, found: StaticFile, *, forever: bool) -> Response:
    """A file of the page."""
    headers = {
        "content-type": found.media,
        "etag": found.etag,
        "cache-control": _FOREVER if forever else _ASK_AGAIN,
        "vary": "accept-encoding",
    }
    return respond(request, lambda: found.data, found.packed, headers)


async def send_finished(scope: Scope, send: Send, headers: Mapping[str, str], done: Finished) -> None:
    """An answer of the interface; straight to the server, since most requests are for what is finished."""
    if has(headers.get("if-none-match", ""), done.etag):
        await send({"type": "http.response.start", "status": 304, "headers": done.headers(packed=False)})
        await send({"type": "http.response.body", "body": b""})
        return
    packed = done.packed and takes_gzip(headers.get("accept-encoding", ""))
    body = done.data if packed or not done.packed else done.plain()
    sent = [*done.headers(packed=packed), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": sent})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


@lru_cache(maxsize=256)
def takes_gzip(accepted: str) -> bool:
    """Whether Accept-Encoding names gzip and does not refuse it (`gzip;q=0`)."""
    for part in accepted.lower().split(","):
        name, _, weight = part.strip().partition(";")
        if name.strip() == "gzip":
            return weight.replace(" ", "").rstrip("0.") not in {"q=", "q"}
    return False


def has(asked: str, etag: str) -> bool:
    """Whether If-None-Match names a tag."""
    return asked == etag or asked.strip() == "*" or etag in [each.strip() for each in asked.split(",")]


def problem_response(problem: Problem, lang: str) -> Response:
    """A refusal; never kept by a cache."""
    headers = {**problem.headers, "cache-control": "no-store", "vary": "accept-language"}
    return Response(problem_body(problem, lang), problem.status, headers, MEDIA)


def is_page(request: Request) -> bool:
    """Whether a browser's reader asks for a page, so that the page should say what is not there."""
    path = request.url.path
    return not path.startswith((PREFIX, "/static/")) and "text/html" in request.headers.get("accept", "")


class Pages:
    """What answers requests: one object a process."""

    def __init__(self, site: Site, rules: Rules, lang: str) -> None:
        self.site = site
        sessions = Sessions(rules.token) if rules.token is not None else None
        self.uploads = Uploads(site, site.overlays, self.language, sessions)
        self.lang = lang
        self.answers = Answers(site)
        self.static = StaticFiles()

    def language(self, request: Request) -> str:
        """The language of a problem: what the query says, else the client's."""
        said = request.query_params.get("lang", "")
        return said if said in LANGUAGES else language_of(request.headers, self.lang)

    async def shell(self, request: Request) -> Response:
        """The page; which one, its own script reads from the address."""
        self.static.refresh()
        return file_response(request, self.static.shell, forever=False)

    async def overview(self, request: Request) -> Response:
        """The overview by its name: it is the first page."""
        query = request.url.query
        return RedirectResponse(f"/?{query}" if query else "/", 308, {"cache-control": "no-store"})

    async def file(self, request: Request) -> Response:
        """A file of the page."""
        found = self.static.find(request.path_params["path"])
        if found is None:
            raise Problem(404, "serve.no_page")
        return file_response(request, found[0], forever=found[1])

    async def door(self, request: Request) -> Response:
        """GET /session: the form, where pages are open to all and only uploads want the token."""
        sessions = self.uploads.sessions
        if sessions is None or knows_token(request.headers, sessions):
            return RedirectResponse("/", 303, {"cache-control": "no-store"})
        return login_page(self.language(request), "/")

    async def log_in(self, request: Request) -> Response:
        """The login form was sent."""
        return await log_in(request, self.uploads.sessions, self.language(request))

    def endpoint(self, route: Route) -> BaseRoute:
        """A route of the interface."""

        return Path(full_path(route), _Answer(self, route), methods=["GET"], name=route.path)

    async def answer(self, route: Route, scope: Scope, send: Send) -> None:
        """Make or find the answer to a request, and send it."""
        headers = Headers(scope=scope)
        lang = language_of(headers, self.lang)
        done = await self.answers.get(route, scope["query_string"], scope.get("path_params", {}), lang)
        await send_finished(scope, send, headers, done)

    def routes(self) -> list[BaseRoute]:
        """All of them."""
        shells = [Path("/", self.shell), Path("/overview", self.overview), Path("/point/{ref}", self.shell)]
        shells += [Path(f"/{name}", self.shell) for name in PAGES]
        return [
            *(self.endpoint(route) for route in ROUTES),
            Path(f"{PREFIX}/overlays", self.uploads.add, methods=["POST"]),
            Path(f"{PREFIX}/overlays/{{id}}", self.uploads.remove, methods=["DELETE"]),
            Path(f"{PREFIX}/session", self.uploads.begin_session, methods=["POST"]),
            Path(f"{PREFIX}/session", self.uploads.end_session, methods=["DELETE"]),
            Path(LOGIN, self.log_in, methods=["POST"]),
            Path(LOGIN, self.door, methods=["GET"]),
            *shells,
            Path("/static/{path:path}", self.file, methods=["GET"]),
        ]

    async def refuse(self, request: Request, error: Exception) -> Response:
        """A problem as an answer."""
        if not isinstance(error, Problem):
            status = getattr(error, "status_code", 500)
            key = {404: "serve.no_page", 405: "serve.no_method"}.get(status, "serve.fault")
            headers = dict(getattr(error, "headers", None) or {})
            error = Problem(status, key, headers=headers)
        path = request.url.path
        if error.status == 401 and not path.startswith(PREFIX):
            return login_page(
                self.language(request), f"{path}?{request.url.query}" if request.url.query else path
            )
        if error.status == 404 and is_page(request):
            found = file_response(request, self.static.shell, forever=False)
            found.status_code = 404 if found.status_code == 200 else found.status_code
            return found
        return problem_response(error, self.language(request))


class _Answer:
    """ASGI of one endpoint; an object, since Starlette hands the scope as it is to one."""

    def __init__(self, pages: Pages, route: Route) -> None:
        self._pages = pages
        self._route = route

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        del receive
        await self._pages.answer(self._route, scope, send)


class App:
    """The guarded application, for a server or a test client."""

    def __init__(self, site: Site, rules: Rules, lang: str = "en") -> None:
        self.pages = Pages(site, rules, lang)
        starlette = Starlette(
            routes=self.pages.routes(),
            lifespan=self._lifespan,
            exception_handlers={Problem: self.pages.refuse, 404: self.pages.refuse, 405: self.pages.refuse},
        )
        starlette.router.redirect_slashes = False
        self._plain = {full_path(route): route for route in ROUTES if not route.path_params}
        self._starlette = starlette
        self._guarded = Guard(self._dispatch, rules, self.pages.refuse)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        await self._guarded(scope, receive, send)

    async def _dispatch(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Endpoints without a parameter in their path are most of what is asked; they are found at once."""
        route = self._plain.get(scope["path"]) if scope["type"] == "http" else None
        if route is not None and scope["method"] in {"GET", "HEAD"}:
            await self.pages.answer(route, scope, send)
            return
        await self._starlette(scope, receive, send)

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        del app
        self.pages.answers.prepare()
        try:
            yield
        finally:
            self.pages.answers.close()
            self.pages.uploads.close()


def create_app(site: Site, rules: Rules | None = None, lang: str = "en") -> App:
    """The application over a site."""
    return App(site, rules or Rules(), lang)
