"""How many GPUs a published row really had, and over which of them its per-GPU figures are.

Sources write the GPU count as tp x ep, lose the split between prefill and decode, and divide input by the prefill GPUs
and output by the decode GPUs. Two identities tell:

closed loop (Little 1961): tokens/s = requests in flight x tokens per request / latency, so
`tput_per_gpu x gpus x e2el / (concurrency x (isl + osl))` is 1 where all lanes are busy and lengths are the nominal ones.
Real rows lie at 0.45..0.97 (lengths are drawn from 0.8..1 of the nominal, lanes start and end empty); it cannot exceed 1
by more than noise. Counts that are a factor of two apart are told apart by it.

tokens add up: input/prefill GPU x P + output/decode GPU x D = total/GPU x (P + D).
"""

from __future__ import annotations

from dataclasses import dataclass

LOOP_LEAST, LOOP_MOST = 0.4, 1.15
"""What the closed loop may come to for the right GPU count."""
ADDS_UP = 0.005
"""Relative tolerance of tokens adding up; real rows agree to 1e-6."""


@dataclass(frozen=True, slots=True)
class Load:
    """What the closed loop needs of a row; None where it is not stated."""

    concurrency: int | None
    tokens_per_request: float | None
    total_per_gpu: float | None
    e2el_s: float | None

    def busy(self, gpus: int) -> float | None:
        """Share of the closed loop that `gpus` GPUs account for; None where a part is missing."""
        if not (self.concurrency and self.tokens_per_request and self.total_per_gpu and self.e2el_s):
            return None
        return self.total_per_gpu * gpus * self.e2el_s / (self.concurrency * self.tokens_per_request)

    def fits(self, gpus: int) -> bool | None:
        """Whether this GPU count can be true; None where it cannot be told."""
        share = self.busy(gpus)
        return None if share is None else LOOP_LEAST <= share <= LOOP_MOST


def pool_gpus(
    tp: int | None, ep: int | None, stated: int | None, load: Load
) -> tuple[int | None, str | None]:
    """(GPUs of one server, note on how that was decided). `stated` is None where the row has no count of its own.

    A stated count that is the tensor-parallel size stands: expert ranks are the same GPUs. Where the two differ, or
    where nothing but tp and ep is given, the closed loop decides, and nothing does if it fits none or several.
    """
    if stated is not None and (tp is None or stated == tp):
        return stated, None
    if tp is None:
        return None, None
    counts = sorted({tp, tp * (ep or 1), stated or tp})
    fitting = [count for count in counts if load.fits(count)]
    shares = ", ".join(f"{count}: {share:.2f}" for count in counts if (share := load.busy(count)) is not None)
    said = f"stated {stated}" if stated is not None else "none stated"
    if len(fitting) == 1:
        return fitting[
            0
        ], f"GPU count {fitting[0]} ({said}) by the closed loop, share of it by count: {shares}"
    why = (
        f"share of the closed loop by count: {shares}"
        if shares
        else "the row lacks what the closed loop needs"
    )
    return None, f"GPU count unknown ({said}, tp {tp}, ep {ep or 1}): {why}"


@dataclass(frozen=True, slots=True)
class Split:
    """GPUs of a disaggregated row. `by_role` says whether input and output are per GPU of one role (True), of all
    (False), or unknown (None)."""

    prefill: int | None
    decode: int | None
    deployed: int | None
    by_role: bool | None
    note: str | None = None


def split_gpus(
    prefill: int | None, decode: int | None, into: float | None, out: float | None, total: float | None
) -> Split:
    """What the stated split of a disaggregated row divides. `into`, `out`, `total`: tokens/s per GPU as stated."""
    if not prefill or not decode:
        return Split(prefill, decode, None, None, "GPU counts of the roles are not stated")
    whole = prefill + decode
    if into is None or out is None or not total:
        return Split(prefill, decode, whole, None, "input or output is absent: the split cannot be checked")
    if abs(into + out - total) <= ADDS_UP * total:
        return Split(prefill, decode, whole, False)
    if abs(into * prefill + out * decode - total * whole) <= ADDS_UP * total * whole:
        return Split(prefill, decode, whole, True)
    return Split(
        None, None, None, None, f"split unknown: tokens do not add up with {prefill} + {decode} GPUs"
    )


def lost_split(
    prefill: int | None, decode: int | None, into: float | None, out: float | None, load: Load
) -> Split:
    """The split of a row that states one count on both sides and no workers, where exactly one makes tokens add up."""
    if not prefill or not decode or into is None or out is None:
        return Split(None, None, None, None, "split unknown: the row lacks what would tell it")
    found = _recover(sorted({prefill, prefill + decode}), into, out, load)
    if len(found) != 1:
        why = "no whole numbers make" if not found else "several whole numbers make"
        return Split(
            None, None, None, None, f"split unknown (stated {prefill} + {decode}): {why} tokens add up"
        )
    (p, d) = found[0]
    said = f"{into:.6g} x {p} + {out:.6g} x {d} = {load.total_per_gpu or 0:.6g} x {p + d}"
    return Split(p, d, p + d, True, f"split {p} + {d} recovered (stated {prefill} + {decode}): {said}")


def _recover(wholes: list[int], into: float, out: float, load: Load) -> list[tuple[int, int]]:
    """Every whole (P, D) in which tokens add up, for counts that the closed loop allows."""
    total = load.total_per_gpu
    if total is None or into == out:
        return []
    found = []
    for whole in wholes:
        if not load.fits(whole):
            continue
        exact = whole * (total - out) / (into - out)
        if not -1 < exact < whole + 1:
            continue
        for p in range(int(exact) - 1, int(exact) + 3):
            d = whole - p
            if 0 < p < whole and abs(into * p + out * d - total * whole) <= ADDS_UP * total * whole:
                found.append((p, d))
    return found
