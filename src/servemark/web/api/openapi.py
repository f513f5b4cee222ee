"""The OpenAPI 3.1 document of the interface, made of the endpoints' declarations."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import cast

from servemark import __version__
from servemark.analysis.selection import KEYS, MAX_TEXT
from servemark.base.messages import text
from servemark.web.api.base import (
    JSON,
    LANG,
    PREFIX,
    Kind,
    Param,
    Query,
    Route,
    full_path,
)
from servemark.web.depends import Depends
from servemark.web.problems import MEDIA
from servemark.web.site import Context

Plain = dict[str, object]
NUMBER_PATTERN = r"[+-]?[0-9]{1,20}(\.[0-9]{0,20})?([eE][+-]?[0-9]{1,3})?"


def schema_of(param: Param) -> Plain:
    """JSON Schema of a parameter's value."""
    if param.kind is Kind.CHOICE:
        return {"type": "string", "enum": list(param.choices)}
    if param.kind is Kind.FLAG:
        return {"type": "string", "enum": ["yes", "no"]}
    if param.kind in {Kind.NUMBER, Kind.INTEGER}:
        whole = param.kind is Kind.INTEGER
        return {
            "type": "integer" if whole else "number",
            "minimum": int(param.minimum) if whole else param.minimum,
            "maximum": int(param.maximum) if whole else param.maximum,
        }
    if param.kind is Kind.ADDRESSES:
        return {"type": "string", "maxLength": 120 * param.limit}
    found: Plain = {"type": "string", "maxLength": param.limit}
    if param.pattern is not None:
        found["pattern"] = f"^{param.pattern}$"
    return found


def parameter(param: Param, where: str, lang: str) -> Plain:
    """A parameter object."""
    return {
        "name": param.name,
        "in": where,
        "required": param.required or where == "path",
        "description": text(param.doc, lang),
        "schema": schema_of(param),
    }


def _selection(lang: str) -> list[Plain]:
    return [
        {
            "name": key,
            "in": "query",
            "required": False,
            "description": text(f"serve.selection.{key}", lang),
            "schema": {"type": "string", "maxLength": MAX_TEXT},
        }
        for key in KEYS
    ]


def _problem(status: int, lang: str) -> Plain:
    schema = {"$ref": "#/components/schemas/Problem"}
    return {"description": text(f"serve.status.{status}", lang), "content": {MEDIA: {"schema": schema}}}


def operation(route: Route, lang: str) -> Plain:
    """The GET of an endpoint."""
    found = [parameter(each, "path", lang) for each in route.path_params]
    found += _selection(lang) if route.selection else []
    found += [parameter(each, "query", lang) for each in (*route.params, LANG)]
    answer: Plain = {"type": "string"}
    if route.media == JSON:
        answer = {"type": "array", "items": {"type": "object"}} if route.list_body else {"type": "object"}
    statuses = (
        [400, 401, 404, 414, 421, 429, 503]
        if route.path_params or route.selection
        else [400, 401, 414, 421, 429, 503]
    )
    responses: Plain = {
        "200": {"description": text(route.summary, lang), "content": {route.media: {"schema": answer}}},
        "304": {"description": text("serve.status.304", lang)},
        **{str(status): _problem(status, lang) for status in statuses},
    }
    name = re.sub(r"\W+", "_", route.path).strip("_")
    return {
        "operationId": name,
        "summary": text(route.summary, lang),
        "parameters": found,
        "responses": responses,
    }


def _write(summary: str, lang: str, statuses: Sequence[int], answers: Plain, **more: object) -> Plain:
    """An operation that changes something; each wants the page's own header."""
    header = {
        "name": "X-Servemark",
        "in": "header",
        "required": True,
        "description": text("serve.param.own_header", lang),
        "schema": {"type": "string", "enum": ["1"]},
    }
    parameters = [header, *cast("list[Plain]", more.pop("parameters", []))]
    refused = {str(status): _problem(status, lang) for status in statuses}
    return {"summary": text(summary, lang), "parameters": parameters, "responses": answers | refused, **more}


def writes(lang: str) -> dict[str, Plain]:
    """Overlays and sessions."""
    name = Param("name", "serve.param.name", limit=MAX_TEXT)
    keep = Param("keep", "serve.param.keep", Kind.FLAG)
    into = Param("into", "serve.param.into", pattern="[0-9a-z]{8,40}", limit=40)
    path = Param("id", "serve.param.overlay_id", required=True, pattern="[0-9a-z]{8,40}", limit=40)
    made: Plain = {
        "201": {
            "description": text("serve.api.overlay", lang),
            "content": {JSON: {"schema": {"type": "object"}}},
        }
    }
    done: Plain = {"204": {"description": text("serve.status.204", lang)}}
    return {
        f"{PREFIX}/overlays": {
            "post": _write(
                "serve.api.overlay",
                lang,
                (400, 401, 403, 404, 408, 413, 421, 429, 503),
                made,
                operationId="add_overlay",
                parameters=[parameter(each, "query", lang) for each in (name, keep, into, LANG)],
                requestBody={
                    "required": True,
                    "description": text("serve.param.body", lang),
                    "content": {
                        "application/octet-stream": {"schema": {"type": "string", "format": "binary"}}
                    },
                },
            )
        },
        f"{PREFIX}/overlays/{{id}}": {
            "delete": _write(
                "serve.api.overlay_gone",
                lang,
                (401, 403, 404, 421, 429),
                done,
                operationId="remove_overlay",
                parameters=[parameter(path, "path", lang)],
            )
        },
        f"{PREFIX}/session": {
            "post": _write(
                "serve.api.session", lang, (401, 403, 421, 429), done, operationId="begin_session"
            ),
            "delete": _write(
                "serve.api.session_end", lang, (401, 403, 421, 429), done, operationId="end_session"
            ),
        },
    }


def document(routes: Sequence[Route], lang: str) -> Plain:
    """The whole document."""
    paths: dict[str, Plain] = {full_path(route): {"get": operation(route, lang)} for route in routes}
    paths |= writes(lang)
    problem = {
        "type": "object",
        "required": ["status", "title", "detail"],
        "properties": {
            "status": {"type": "integer"},
            "title": {"type": "string"},
            "detail": {"type": "string"},
            "next": {"type": ["string", "null"]},
        },
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "servemark",
            "version": __version__,
            "summary": text("serve.api.title", lang),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{}, {"bearer": []}],
        "paths": paths,
        "components": {
            "schemas": {"Problem": problem},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def route_over(others: Sequence[Route]) -> Route:
    """The endpoint that publishes the document of all others and of itself."""

    def reply(ctx: Context, query: Query) -> object:
        del ctx
        return document((*others, route), query.lang)

    route = Route("/openapi.json", "serve.api.openapi", reply, depends=Depends.PROGRAM)
    return route
