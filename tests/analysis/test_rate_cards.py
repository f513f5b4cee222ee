"""Rate cards: what is read, what is refused and where, which card is meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from servemark.analysis.rate_cards import DEFAULT_CARD, cards, choose, load_card, rates_folder, shelf
from servemark.base.errors import ServemarkError

GOOD = """\
schema: 1
name: mine
date: 2026-11-01
currency: USD
gpus:
  H100: {usd-per-gpu-hour: 2.5, price-source: contract, kw-per-gpu: 1.3, power-scope: facility, power-source: meter}
  mi300x: {usd_per_gpu_hour: 2, price-source: https://example.org, price-read: 2026-10-30}
"""

HEAD = GOOD.partition("gpus:")[0]


def written(folder: Path, body: str, name: str = "card.yaml") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(body, encoding="utf-8")
    return path


def test_a_card_says_value_source_and_day(tmp_path: Path) -> None:
    card = load_card(written(tmp_path, GOOD))
    assert card.edition == "mine@2026-11-01"
    h100 = card.rate("h100")
    assert h100 is not None
    assert h100.usd_per_gpu_hour is not None
    assert (h100.usd_per_gpu_hour.value, h100.usd_per_gpu_hour.read) == (2.5, "2026-11-01")
    assert h100.power_scope == "facility"
    amd = card.rate("MI300X")
    assert amd is not None
    assert amd.usd_per_gpu_hour is not None
    assert amd.usd_per_gpu_hour.read == "2026-10-30"
    assert amd.kw_per_gpu is None
    assert card.rate("b200") is None


@pytest.mark.parametrize(
    ("old", "new", "where", "said"),
    [
        ("2.5", "0", ":6:28", "above 0"),
        ("2.5", "-1", ":6:28", "above 0"),
        ("2.5", ".nan", ":6:28", "usd-per-gpu-hour"),
        ("2.5", ".inf", ":6:28", "usd-per-gpu-hour"),
        ("2.5", "250000", ":6:28", "another unit"),
        ("1.3", "1300", ":6:69", "another unit"),
        ("2.5", "'2.5'", ":6:28", "number"),
        ("2.5", "yes", ":6:28", "number"),
        ("power-scope: facility", "power-scope: building", ":6:87", "it-load"),
        ("power-scope: facility, ", "", ":6:9", "power-scope"),
        ("price-source: contract, ", "", ":6:9", "price-source"),
        ("date: 2026-11-01", "date: 2026-13-01", ":3:7", "2026-13-01"),
        ("date: 2026-11-01\n", "", ":1:1", "date"),
        ("currency: USD", "currency: EUR", ":4:11", "EUR"),
        ("name: mine", "name: ../mine", ":2:7", "../mine"),
        ("mi300x:", "h100:", ":7:9", "twice"),
        ("mi300x:", "H100:", ":7:3", "H100"),
        ("usd_per_gpu_hour: 2,", "", ":7:11", "neither a price nor a power"),
        ("kw-per-gpu", "kw-per-gpus", ":6:57", "kw-per-gpu"),
        ("schema: 1", "schema: 2", ":1:9", "2"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(
    tmp_path: Path, old: str, new: str, where: str, said: str
) -> None:
    """Line and column were counted by hand in `GOOD`."""
    assert old in GOOD
    path = written(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(ServemarkError) as caught:
        load_card(path)
    assert caught.value.exit_code == 2
    assert f"card.yaml{where}" in caught.value.what("en")
    assert said in caught.value.what("en")
    assert "card.yaml" in caught.value.what("zh")


@pytest.mark.parametrize(
    "body",
    [
        "",
        "[]",
        "gpus: [",
        "\x00\x01",
        "a: &a [x, x, x, x, x, x, x, x, x]\n"
        + "".join(
            f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(9)
        ),
        HEAD + "gpus: {}\n",
        HEAD + "gpus:\n" + "".join(f"  g{i}: {{usd-per-gpu-hour: 1, price-source: x}}\n" for i in range(300)),
    ],
    ids=["empty", "list", "broken", "binary", "bomb", "no_gpu", "too_many"],
)
def test_nothing_of_it_is_a_card(tmp_path: Path, body: str) -> None:
    with pytest.raises(ServemarkError) as caught:
        load_card(written(tmp_path, body))
    assert caught.value.exit_code == 2


def test_shipped_cards_are_sound_and_say_that_they_are_examples() -> None:
    found = shelf(None)
    assert not found.faults
    assert choose(found, None).name == DEFAULT_CARD
    for card in found.cards:
        assert card.origin == "shipped"
        assert "Example" in (card.note or "")
        assert card.name.startswith("example-")
        for rate in card.gpus.values():
            for stated in (rate.usd_per_gpu_hour, rate.kw_per_gpu):
                assert stated is None or stated.source.startswith("https://")
    assert {path.stem for path in rates_folder().glob("*.yaml")} == {card.name for card in found.cards}


def test_users_cards_win_and_the_newest_edition_is_meant(tmp_path: Path) -> None:
    rates = tmp_path / "rates"
    written(rates, GOOD, "old.yaml")
    written(rates, GOOD.replace("2026-11-01", "2026-11-20").replace("2.5", "3.5"), "new.yaml")
    written(
        rates,
        GOOD.replace("name: mine", f"name: {DEFAULT_CARD}").replace("2026-11-01", "2026-01-01"),
        "d.yaml",
    )
    known = shelf(tmp_path)
    assert not known.faults
    assert choose(known, None).edition == "mine@2026-11-20"
    assert choose(known, "mine").edition == "mine@2026-11-20"
    assert choose(known, "mine@2026-11-01").edition == "mine@2026-11-01"
    assert choose(known, DEFAULT_CARD).origin == "user"
    assert [card.origin for card in known.cards] == ["user", "user", "user", "shipped"]
    assert cards(tmp_path) == list(known.cards)
    assert choose(known, str(written(tmp_path, GOOD.replace("mine", "file")))).name == "file"


def test_a_faulty_file_harms_no_other_card(tmp_path: Path) -> None:
    rates = tmp_path / "rates"
    written(rates, GOOD, "a.yaml")
    written(rates, GOOD, "b.yaml")
    written(rates, GOOD.replace("2.5", "0").replace("mine", "c"), "c.yaml")
    (rates / "d.yaml").mkdir()
    known = shelf(tmp_path)
    assert choose(known, "mine").name == "mine"
    assert len(known.faults) == 3
    assert "same edition" in known.faults[0].what("en")
    assert "c.yaml:6:28" in known.faults[1].what("en")


@pytest.mark.parametrize("wanted", ["min", "nothing-like-it", "mine@2020-01-01", "./none.yaml"])
def test_an_unknown_card_gets_an_answer_that_helps(tmp_path: Path, wanted: str) -> None:
    written(tmp_path / "rates", GOOD)
    with pytest.raises(ServemarkError) as caught:
        choose(shelf(tmp_path), wanted)
    assert caught.value.exit_code == 2
    if not wanted.startswith("."):
        assert caught.value.next_step("en")
        assert caught.value.next_step("zh")
