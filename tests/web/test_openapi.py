"""The published description: it is OpenAPI, it names every endpoint, and requests made from it find no fault."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from servemark.base.messages import LANGUAGES
from servemark.web.api.openapi import document
from servemark.web.api.registry import ROUTES

Made = dict[str, Any]


def test_every_endpoint_is_described() -> None:
    """In both languages, with unique ids, and nothing left to describe."""
    for lang in LANGUAGES:
        made: Any = document(ROUTES, lang)
        assert made["openapi"].startswith("3.1")
        for route in ROUTES:
            found = made["paths"][f"/api/v1{route.path}"]["get"]
            assert found["summary"]
            named = {each["name"] for each in found["parameters"]}
            assert named == {*route.keys(), *(each.name for each in route.path_params)}
        ids = [each["operationId"] for path in made["paths"].values() for each in path.values()]
        assert len(ids) == len(set(ids))
        assert {"/api/v1/overlays", "/api/v1/overlays/{id}", "/api/v1/session"} <= set(made["paths"])


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, made: Made) -> Iterator[str]:
    """A real server over five points."""
    home = tmp_path_factory.mktemp("described") / "home"
    made["fill"](home, made["rows"]())
    with made["served"](home) as (url, _):
        yield url


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_requests_made_from_it(served: str, mode: GenerationMode) -> None:
    """No fault of the server; no status, type or body that is not described; what breaks the description is refused. Words
    of the right shape may still name no model or metric: those are refused too, which one check would forbid."""
    api = schemathesis.openapi.from_url(f"{served}/api/v1/openapi.json", wait_for_schema=10)
    seen = 0
    for found in api.get_all_operations():
        operation: Any = found.ok()  # type: ignore[union-attr]  # one that is not sound raises here
        if mode is GenerationMode.NEGATIVE and operation.method.upper() != "GET":
            continue  # any bytes are a body, and a missing header is 403 before anything is read

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(
            max_examples=10,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        def ask(case: Any) -> None:  # noqa: ANN401 - the library's own type
            answer = case.call()
            if answer.status_code != 414:  # too long for any query, whatever stands in it
                case.validate_response(answer, excluded_checks=[positive_data_acceptance])

        ask()
        seen += 1
    assert seen >= len(ROUTES) - 1  # the library leaves out the document itself
