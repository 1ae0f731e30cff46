"""Transitions: construction, starts, slices, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from problems import transitions

from gpsarsa import Transitions
from gpsarsa.transitions import History

X = np.arange(8.0).reshape(4, 2)
Y = np.vstack([X[1:], [[9.0, 9.0]]])
R = np.array([1.0, 2.0, 3.0, 4.0])
G = np.array([0.9, 0.0, 0.9, 0.9])


def test_starts_are_where_a_row_does_not_continue_the_one_before():
    assert Transitions(X, R, Y, G).starts.tolist() == [True, False, True, False]
    assert Transitions(X, R, Y + np.eye(4, 2, -2) * 1e-9, G).starts.tolist()[3]
    told = Transitions(X, R, Y, G, [0, 1, 0, 1])
    assert told.starts.dtype == bool
    assert told.starts.tolist() == [False, True, False, True]


def test_slices_keep_starts():
    t = Transitions(X, R, Y, G)
    assert t[1:3].starts.tolist() == [False, True]
    assert t[1].starts.tolist() == [False]
    assert t[-1].rewards.tolist() == [4.0]
    assert t[::2].rewards.tolist() == [1.0, 3.0]
    assert t[np.array([3, 0])].starts.tolist() == [False, True]
    assert len(t[4:]) == 0
    for index in (4, -5):
        with pytest.raises(IndexError):
            t[index]


def test_next_inputs_of_terminal_rows_are_ignored():
    following = Y.copy()
    following[1] = [np.nan, np.inf]
    t = Transitions(X, R, following, G)
    np.testing.assert_array_equal(t.next_inputs[1], X[1])
    with pytest.raises(ValueError, match=r"next_inputs\[0\] = \[nan"):
        Transitions(X, R, np.full_like(Y, np.nan), G)


def test_it_is_frozen_and_owns_its_data():
    x = X.copy()
    t = Transitions(x, R, Y, G)
    x[:] = 0
    np.testing.assert_array_equal(t.inputs, X)
    for name in ("inputs", "rewards", "next_inputs", "discounts", "starts"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(t, name)[0] = 0
        with pytest.raises(AttributeError):
            setattr(t, name, None)


def test_from_trajectory():
    path = np.arange(10.0).reshape(5, 2)
    cut = Transitions.from_trajectory(path, R, 0.9, terminated=False)
    np.testing.assert_array_equal(cut.next_inputs, path[1:])
    assert cut.discounts.tolist() == [0.9] * 4
    for inputs in (path, path[:4]):
        ended = Transitions.from_trajectory(inputs, R, 0.9, terminated=True)
        assert ended.discounts.tolist() == [0.9, 0.9, 0.9, 0.0]
        assert ended.starts.tolist() == [True, False, False, False]
    still = Transitions.from_trajectory(np.zeros((4, 2)), R[:3], 1.0, terminated=False)
    assert still.starts.tolist() == [True, False, False]
    assert len(Transitions.from_trajectory(path[:1], [], 0.9, terminated=False)) == 0
    with pytest.raises(
        ValueError, match=r"inputs has 4 rows for 4 rewards; expected 5 with terminated=False"
    ):
        Transitions.from_trajectory(path[:4], R, 0.9, terminated=False)
    with pytest.raises(ValueError, match="expected 5 or 4"):
        Transitions.from_trajectory(path[:3], R, 0.9, terminated=True)
    with pytest.raises(ValueError, match=r"gamma = 1.2; expected a number in \[0, 1\]"):
        Transitions.from_trajectory(path, R, 1.2, terminated=True)


def test_concatenate():
    t = Transitions(X, R, Y, G)
    both = Transitions.concatenate([t[1:], t, t[:0]])
    assert len(both) == 7
    assert both.starts.tolist() == [False, True, False, True, False, True, False]
    with pytest.raises(ValueError, match="parts is empty"):
        Transitions.concatenate([])
    with pytest.raises(TypeError, match=r"parts\[1\] is a int"):
        Transitions.concatenate([t, 3])
    with pytest.raises(ValueError, match=r"parts\[1\] has 1 columns"):
        Transitions.concatenate([t, Transitions([[1.0]], [1.0], [[1.0]], [0.0])])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"inputs": X[:, 0]},
            ValueError,
            r"inputs has shape \(4,\); expected \(rows, columns\); a single row is",
        ),
        ({"inputs": X[:0]}, ValueError, r"rewards has shape \(4,\); expected \(0,\)"),
        ({"inputs": np.zeros((4, 0))}, ValueError, "inputs has no columns"),
        ({"inputs": X.astype(str)}, TypeError, "inputs has dtype"),
        ({"inputs": X.astype(complex)}, TypeError, "inputs has dtype complex128"),
        ({"inputs": [[1, 2], [3]]}, ValueError, "inputs is not a rectangular array"),
        ({"inputs": [[None, 1]] * 4}, TypeError, "inputs has dtype object"),
        ({"inputs": np.where(X == 5, np.nan, X)}, ValueError, r"inputs\[2\] = \[ 4. nan\]; expected finite"),
        ({"rewards": R[:3]}, ValueError, r"rewards has shape \(3,\); expected \(4,\)"),
        ({"rewards": [0, 1, -np.inf, 2]}, ValueError, r"rewards\[2\] = -inf"),
        ({"next_inputs": Y[:, :1]}, ValueError, "next_inputs has 1 columns; expected 2"),
        ({"next_inputs": Y[:3]}, ValueError, "next_inputs has 3 rows; expected 4"),
        (
            {"discounts": [0.9, 1.1, 0.9, 0.9]},
            ValueError,
            r"discounts\[1\] = 1.1; expected a number in \[0, 1\]",
        ),
        ({"discounts": [0.9, 0.9, -0.1, 0.9]}, ValueError, r"discounts\[2\] = -0.1"),
        ({"discounts": [0.9, np.nan, 0.9, 0.9]}, ValueError, r"discounts\[1\] = nan"),
        ({"discounts": [True, False, True, True]}, TypeError, "discounts holds flags; expected numbers"),
        ({"starts": [True]}, ValueError, r"starts has shape \(1,\); expected \(4,\)"),
        ({"starts": [0.5, 1, 0, 1]}, TypeError, "starts has dtype float64; expected booleans"),
        ({"starts": [2, 1, 0, 1]}, TypeError, "expected booleans"),
    ],
)
def test_errors_name_the_argument_and_the_row(change, error, message):
    good = {"inputs": X, "rewards": R, "next_inputs": Y, "discounts": G}
    with pytest.raises(error, match=message):
        Transitions(**(good | change))


def test_equality_is_of_all_rows():
    t = Transitions(X, R, Y, G)
    assert t == Transitions(X, R, Y, G)
    assert t[:3] != t
    assert t != Transitions(X, R, Y, G, [1, 1, 1, 1])
    assert t != 3


def test_lists_and_integers_are_fine():
    t = Transitions([[1, 2], [3, 4]], [1, 0], [[3, 4], [5, 6]], [1, 0])
    assert t.inputs.dtype == float
    assert repr(t) == "Transitions(2 rows, 2 columns, 1 starts)"
    assert len(Transitions(np.zeros((0, 3)), [], np.zeros((0, 3)), [], [])) == 0


def test_history_grows_and_its_views_stay(rng):
    history, t = History(3), transitions(rng, 50)
    views = []
    for lo in range(0, len(t), 7):
        part = t[lo : lo + 7]
        history.append(part, np.arange(lo, lo + len(part), dtype=float))
        views.append((history.transitions, len(history)))
    for view, length in views:
        np.testing.assert_array_equal(view.inputs, t.inputs[:length])
        np.testing.assert_array_equal(view.starts, t.starts[:length])
    np.testing.assert_array_equal(history.residuals, np.arange(len(t)))
