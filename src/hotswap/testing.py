"""Checks for bandits and searches of your own: what every one must do, for one run and for many, in NumPy and in torch.

    from hotswap.testing import check_bandit

    def test_my_bandit() -> None:
        check_bandit(MyBandit())

Each check raises an AssertionError with a sentence on what is wrong.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import torch

from hotswap.arrays import Array, Device
from hotswap.bandits import Bandit
from hotswap.searches import Search
from hotswap.searches.base import AnyWalk
from hotswap.states import State, arrays_of

__all__ = ["check_bandit", "check_search"]

CPU = torch.device("cpu")
KINDS: tuple[tuple[str, Device], ...] = (("NumPy", None), ("torch", CPU))
RUNS, ARMS, STEPS = 4, 6, 60
SEEDS = (3, 14, 15, 92)


def check_bandit(bandit: Bandit, *, learns: bool = True, any_arms: bool = True) -> None:
    """Check that a bandit, random or not, can train one run or many and be saved and resumed.

    Args:
        bandit: the bandit to check, with its settings.
        learns: whether it is expected to find an arm that pays far more than all others; False for bandits that are not
            meant to, such as one that always proposes the same arm.
        any_arms: whether it works with any number of arms; False for bandits that are made for some number, which must
            be 6 for these checks, such as a factored one of the shape (2, 3).

    Raises:
        AssertionError: It does something that a bandit must not do; the sentence says what.
    """
    _check_settings(bandit)
    for kind, device in KINDS:
        _check_form(bandit, kind, device, (1, ARMS) if any_arms else (ARMS,))
        _check_purity(bandit, kind, device)
        _check_independence(bandit, kind, device)
        _check_resuming(bandit, kind, device)
        _check_untried(bandit, kind, device)
        _check_division(bandit, kind, device)
        _check_numbers(bandit, kind, device)
        if learns:
            _check_learning(bandit, kind, device)
    _check_lists(bandit)
    _check_agreement(bandit)


def check_search(search: Search) -> None:
    """Check that a search ends, stays among the arms, and walks the same way alone, beside others, and in torch.

    One with `tries = False` must have ended where it begins, and takes an arm of the row or none.

    Raises:
        AssertionError: It does something that a search must not do; the sentence says what.
    """
    _check_settings(search)
    for arms, row in ((1, None), (5, None), (12, 4)):
        generator = np.random.default_rng(arms)
        losses = generator.uniform(0.0, 2.0, (24, arms))
        losses[generator.random(losses.shape) < 0.15] = np.nan
        losses[generator.random(losses.shape) < 0.05] = np.inf
        losses[0], losses[1], losses[2] = np.nan, np.linspace(0.9, 0.1, arms), np.linspace(0.1, 3.0, arms)
        proposals = generator.integers(0, arms, len(losses))
        slopes = generator.uniform(-0.2, 1.0, losses.shape)
        slopes[generator.random(losses.shape) < 0.05] = np.nan
        alone = [_walk_alone(search, losses[run], slopes[run], int(proposals[run]), row) for run in range(len(losses))]
        for kind, array in (("NumPy", np.asarray), ("torch", torch.from_numpy)):
            _check_walks(search, kind, array(losses), array(slopes), array(proposals), row, alone)


# --- both -------------------------------------------------------------------------------------------------------------


def _say(condition: object, part: object, sentence: str) -> None:
    if not condition:
        raise AssertionError(f"{type(part).__name__}: {sentence}")


def _check_settings(part: object) -> None:
    if isinstance(part, type):
        name = part.__name__
        raise AssertionError(f"{name} is a class; check an object of it: {name}().")  # noqa: TRY004 - as for all else
    frozen = getattr(getattr(part, "__dataclass_params__", None), "frozen", False)
    _say(
        frozen or not getattr(part, "__dict__", {}),
        part,
        "its settings can be changed; make it a dataclass with frozen=True, and keep what it remembers in its state.",
    )
    try:
        hash(part)
    except TypeError:
        raise AssertionError(
            f"{type(part).__name__}: it has no hash; use settings that cannot change, such as numbers and tuples."
        ) from None


def _numpy(array: Array) -> Any:
    return np.asarray(array)


def _form(state: State) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and type of each field."""
    for name, array in arrays_of(state).items():
        if not (hasattr(array, "shape") and hasattr(array, "dtype")):
            raise AssertionError(
                f"{type(state).__name__}: every field of a state must be an array whose first axis counts runs, but "
                f"{name} is of type {type(array).__name__}."
            )
    return {name: (tuple(array.shape), str(array.dtype)) for name, array in arrays_of(state).items()}


def _equal(one: State, other: State) -> bool:
    """Whether all fields of two states are equal. NaN equals NaN."""
    fields, others = arrays_of(one), arrays_of(other)
    return fields.keys() == others.keys() and all(
        np.array_equal(_numpy(array), _numpy(others[name]), equal_nan=_numpy(array).dtype.kind == "f")
        for name, array in fields.items()
    )


def _close(one: State, other: State, runs: slice = slice(None)) -> bool:
    """Whether a state is that of some runs of another one, but for rounding."""
    others = arrays_of(other)
    return all(
        np.allclose(_numpy(array), _numpy(others[name])[runs], rtol=1e-9, atol=1e-12, equal_nan=True)
        for name, array in arrays_of(one).items()
    )


# --- bandits ----------------------------------------------------------------------------------------------------------


def _array(values: Any, device: Device) -> Array:
    array = np.asarray(values)
    return array if device is None else torch.from_numpy(array.copy())


def _begin(bandit: Bandit, device: Device, seeds: Sequence[int] = SEEDS, arms: int = ARMS) -> State:
    return bandit.begin(len(seeds), arms, device, seeds)


def _drive(bandit: Bandit, state: State, rewards: Any, device: Device) -> tuple[Any, State]:
    """Pay `rewards` `(R, K, steps)`: the arms `(R, steps)` that were proposed, and the state at the end."""
    runs, arms, steps = rewards.shape
    proposals = []
    for t in range(steps):
        proposed: object = bandit.propose(state)
        _say(
            type(proposed) is tuple and len(proposed) == 2,
            bandit,
            "propose() must return two things: the arm of each run, and the state after proposing it.",
        )
        arm, state = cast("tuple[Array, State]", proposed)
        chosen = _numpy(arm)
        _say(chosen.shape == (runs,), bandit, f"propose() gave an arm of shape {chosen.shape} for {runs} runs.")
        _say(chosen.dtype.kind == "i", bandit, f"propose() gave arms of type {chosen.dtype}, not whole numbers.")
        inside = ((chosen >= 0) & (chosen < arms)).all()
        _say(inside, bandit, f"propose() gave the arms {chosen.tolist()}, but they are numbered 0 to {arms - 1}.")
        proposals.append(chosen)
        earned = rewards[np.arange(runs), chosen, t][:, None]
        state = bandit.observe(state, arm[:, None], _array(earned, device))
    return np.stack(proposals, axis=1), state


def _rewards(seed: int, runs: int = RUNS, arms: int = ARMS, steps: int = STEPS) -> Any:
    return np.random.default_rng(seed).normal(size=(runs, arms, steps))


def _check_form(bandit: Bandit, kind: str, device: Device, sizes: tuple[int, ...]) -> None:
    for arms in sizes:
        state = _begin(bandit, device, arms=arms)
        form = _form(state)
        for name, (shape, _) in form.items():
            _say(shape[:1] == (RUNS,), bandit, f"the first axis of its state's {name} must be runs, but it is {shape}.")
        _, after = _drive(bandit, state, _rewards(0, arms=arms, steps=2 * ARMS), device)
        _say(type(after) is type(state), bandit, f"its state becomes a {type(after).__name__} while it trains.")
        _say(_form(after) == form, bandit, f"shapes or types of its state change in {kind}: {form} to {_form(after)}.")
        for method in (bandit.index, bandit.counts, bandit.means):
            shape = tuple(method(after).shape)
            _say(shape == (RUNS, arms), bandit, f"{method.__name__}() has the shape {shape}, not runs by arms.")
        for known in (state, after):
            unsure = _numpy(bandit.unsure(known))
            fits = unsure.shape == (RUNS,) and unsure.dtype.kind == "b"
            _say(fits, bandit, f"unsure() must be true or false for each run, but it is {unsure.tolist()} in {kind}.")


def _check_purity(bandit: Bandit, kind: str, device: Device) -> None:
    _, state = _drive(bandit, _begin(bandit, device), _rewards(1), device)
    before = copy.deepcopy(state)
    arm, proposed = bandit.propose(state)
    asked = [bandit.propose(state) for _ in range(8)]  # so often, since random numbers may agree once or twice
    _say(_equal(state, before), bandit, f"propose() changes the state that it is given in {kind}; return another one.")
    same = all(np.array_equal(_numpy(arm), _numpy(again)) and _equal(proposed, other) for again, other in asked)
    _say(
        same,
        bandit,
        f"propose() gives something else when it is asked again from the same state in {kind}; all that it depends on, "
        "random numbers too, must be in the state.",
    )
    kept, reward = copy.deepcopy(proposed), _array(np.ones((RUNS, 1)), device)
    learned = bandit.observe(proposed, arm[:, None], reward)
    _say(_equal(proposed, kept), bandit, f"observe() changes the state that it is given in {kind}; return another one.")
    same = _equal(learned, bandit.observe(proposed, arm[:, None], reward))
    _say(same, bandit, f"observe() gives something else when it is asked again from the same state in {kind}.")


def _check_independence(bandit: Bandit, kind: str, device: Device) -> None:
    rewards = _rewards(2)
    together, state = _drive(bandit, _begin(bandit, device), rewards, device)
    for run, seed in enumerate(SEEDS):
        alone, single = _drive(bandit, _begin(bandit, device, [seed]), rewards[run : run + 1], device)
        same = np.array_equal(alone[0], together[run]) and _close(single, state, slice(run, run + 1))
        _say(same, bandit, f"a run depends on those beside it in {kind}: it goes another way when it is alone.")


def _check_resuming(bandit: Bandit, kind: str, device: Device) -> None:
    rewards = _rewards(3)
    _, middle = _drive(bandit, _begin(bandit, device), rewards, device)
    saved = {name: _numpy(array).copy() for name, array in arrays_of(middle).items()}
    straight, end = _drive(bandit, middle, _rewards(4), device)
    fresh = bandit.begin(RUNS, ARMS, device)  # other seeds: those in force are saved
    arrays = {name: _array(array, device) for name, array in saved.items()}
    resumed, state = _drive(bandit, bandit.restored(fresh, arrays, bandit.state_version), _rewards(4), device)
    same = np.array_equal(straight, resumed) and _equal(end, state)
    _say(same, bandit, f"it does not continue exactly when its state is saved and loaded in {kind}.")


def _check_untried(bandit: Bandit, kind: str, device: Device) -> None:
    _, state = _drive(bandit, _begin(bandit, device), _rewards(5), device)
    arm = _array([[run % ARMS, (run + 1) % ARMS] for run in range(RUNS)], device)
    reward = _array([[1.0, np.nan]] * RUNS, device)
    nothing = bandit.observe(state, arm, reward, _array([[False, False]] * RUNS, device))
    _say(_equal(nothing, state), bandit, f"observe() learns from trials that did not happen (tried=False) in {kind}.")
    first = bandit.observe(state, arm[:, :1], reward[:, :1])
    both = bandit.observe(state, arm, reward, _array([[True, False]] * RUNS, device))
    _say(_equal(first, both), bandit, f"observe() lets trials that did not happen change what others teach in {kind}.")


def _check_division(bandit: Bandit, kind: str, device: Device) -> None:
    """An optimizer shows all trials of a step at once, an ensemble those of one block after the other."""
    _, state = _drive(bandit, _begin(bandit, device), _rewards(7), device)
    arms = _array([[(run + trial) % ARMS for trial in range(3)] for run in range(RUNS)], device)
    rewards = _array(_rewards(8, steps=1)[:, :3, 0], device)
    at_once, divided = bandit.observe(state, arms, rewards), state
    for trial in range(3):
        divided = bandit.observe(divided, arms[:, trial : trial + 1], rewards[:, trial : trial + 1])
    same = _close(at_once, divided)
    _say(same, bandit, f"observe() learns something else from three trials one by one than from all at once in {kind}.")


def _check_numbers(bandit: Bandit, kind: str, device: Device) -> None:
    methods: tuple[Callable[[State], Array], ...] = (bandit.index, bandit.counts, bandit.means)
    state = _begin(bandit, device)
    known = [method for method in methods if not np.isnan(_numpy(method(state))).any()]
    for reward in (-100.0, 0.0, 100.0, 1e-12):
        _, state = _drive(bandit, state, np.full((RUNS, ARMS, STEPS), reward), device)
        for method in known:
            fine = not np.isnan(_numpy(method(state))).any()
            _say(fine, bandit, f"{method.__name__}() became NaN in {kind}, although all rewards were finite.")


def _check_learning(bandit: Bandit, kind: str, device: Device) -> None:
    rewards = np.zeros((RUNS, ARMS, 400))
    rewards[:, 3] = 50.0
    proposals, _ = _drive(bandit, _begin(bandit, device), rewards, device)
    often = (proposals[:, 100:] == 3).mean()
    _say(
        often > 0.5,
        bandit,
        f"it proposes the only arm that pays in {often:.0%} of its later steps in {kind}; pass learns=False if it is "
        "not meant to learn.",
    )


def _check_lists(bandit: Bandit) -> None:
    """An optimizer has one run, and shows its trials as lists."""
    state = _begin(bandit, None, SEEDS[:1])
    arrays = bandit.observe(state, np.array([[0, 1]]), np.array([[0.5, -0.5]]))
    lists = bandit.observe(state, [[0, 1]], [[0.5, -0.5]])
    _say(_equal(arrays, lists), bandit, "observe() must take lists of lists, too, where the state is in NumPy.")


def _check_agreement(bandit: Bandit) -> None:
    rewards = _rewards(6)
    ours, state = _drive(bandit, _begin(bandit, None), rewards, None)
    theirs, other = _drive(bandit, _begin(bandit, CPU), rewards, CPU)
    same = np.array_equal(ours, theirs) and _close(state, other)
    _say(same, bandit, "it proposes other arms in torch than in NumPy.")


# --- searches ---------------------------------------------------------------------------------------------------------

BEFORE = 1.0  # the loss at the start point


def _observe(search: Search, walk: AnyWalk, loss: Array, slope: Array) -> AnyWalk:
    return search.observe(walk, loss, slope) if search.needs_slope else search.observe(walk, loss)


def _walk_alone(search: Search, losses: Any, slopes: Any, proposal: int, row: int | None) -> tuple[list[int], int]:
    """The arms that one run tries, as plain numbers, and the one it takes."""
    arms = len(losses)
    walk = search.begin(proposal, BEFORE, arms=arms, row=row)
    _check_fields(search, walk)
    first = proposal // row * row if row else 0
    last = first + (row or arms) - 1
    tried: list[int] = []
    _say(walk.done or search.tries, search, "it has `tries = False`, but its walk begins with a trial.")
    while not walk.done:
        _say(first <= walk.arm <= last, search, f"it walks to arm {walk.arm}, but it has to stay in {first} to {last}.")
        tried.append(int(walk.arm))
        _say(len(tried) <= 10 * arms, search, f"its walk does not end: {len(tried)} trials among {arms} arms.")
        before = copy.deepcopy(walk)
        after = _observe(search, walk, float(losses[walk.arm]), float(slopes[walk.arm]))
        same = arrays_of(walk) == arrays_of(before)
        _say(same, search, "observe() changes the walk that it is given; return another one.")
        walk = after
    chosen = int(search.choose(walk))
    if not search.tries:
        fine = chosen == -1 or first <= chosen <= last
        _say(fine, search, f"it takes arm {chosen}, but it has to stay in {first} to {last}.")
        return tried, chosen
    _say(chosen == -1 or chosen in tried, search, f"it takes arm {chosen}, which it has not tried.")
    fine = chosen == -1 or np.isfinite(losses[chosen])
    _say(fine, search, f"it takes arm {chosen}, whose loss was {losses[chosen]}.")
    return tried, chosen


def _check_fields(search: Search, walk: AnyWalk) -> None:
    missing = {"arm", "done"} - arrays_of(walk).keys()
    _say(not missing, search, f"its walk has no field {' and no field '.join(sorted(missing))}.")


def _check_walks(
    search: Search,
    kind: str,
    losses: Array,
    slopes: Array,
    proposals: Array,
    row: int | None,
    alone: list[tuple[list[int], int]],
) -> None:
    """Many runs at once try and take what each does alone."""
    runs, arms = losses.shape
    before = _array(np.full(runs, BEFORE), None if kind == "NumPy" else CPU)
    walk = search.begin(proposals, before, arms=arms, row=row)
    form = _form(walk)
    for trial in range(max(len(tried) for tried, _ in alone) + 1):  # and one when all have ended
        done = _numpy(walk.done)
        expected = [tried[trial] if trial < len(tried) else None for tried, _ in alone]
        now = [None if ended else int(arm) for ended, arm in zip(done, _numpy(walk.arm), strict=True)]
        _say(now == expected, search, f"many runs in {kind} try other arms than each as plain numbers.")
        foreseen = _numpy(search.foresee(walk, 3))
        fine = foreseen.shape == (runs, 3) and (foreseen[:, 0] == _numpy(walk.arm))[~done].all()
        _say(fine, search, f"foresee(walk, 3) must be of shape ({runs}, 3) and begin with the walk's arm.")
        here = np.arange(runs), _numpy(walk.arm).clip(0, arms - 1)
        after = _observe(search, walk, losses[here], slopes[here])
        _say(_form(after) == form, search, f"shapes or types of its walk change in {kind}: {form} to {_form(after)}.")
        _check_finished(search, kind, walk, after)
        walk = after
    _say(_numpy(walk.done).all(), search, f"walks of many runs in {kind} go on where each as plain numbers has ended.")
    chosen = _numpy(search.choose(walk)).tolist()
    _say(chosen == [took for _, took in alone], search, f"many runs in {kind} take other arms than each alone.")


def _check_finished(search: Search, kind: str, walk: AnyWalk, after: AnyWalk) -> None:
    """A run whose walk has ended is shown losses of others' trials, and takes the same arm afterwards."""
    done = _numpy(walk.done)
    stayed = _numpy(after.done)[done].all() and np.array_equal(
        _numpy(search.choose(walk))[done], _numpy(search.choose(after))[done]
    )
    _say(stayed, search, f"a walk that has ended changes when it is shown another loss in {kind}.")
