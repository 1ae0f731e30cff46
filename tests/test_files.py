"""Saving and loading: bit-identical continuation, atomic writing, and files that are not ours."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st
from problems import KERNELS, pseudo_inputs, transitions
from test_errors import fingerprint
from test_sparse import COMBINATIONS, Cosine

from gpsarsa import CheckpointError, GPSarsa, SparseGPSarsa, checkpoint


def live_on(model, rng):
    """Everything a model can go through."""
    t = transitions(rng)
    model.update(t[:11])
    for j in range(11, 20):
        model.observe(t.inputs[j], t.rewards[j], t.next_inputs[j], t.discounts[j])
    if isinstance(model, SparseGPSarsa):
        model.add_pseudo_inputs(pseudo_inputs(rng, 5))
        model.remove_pseudo_inputs([3, 0])
    return model.update(t[20:]).update(transitions(rng, 100))  # more than the first buffers hold


@pytest.mark.parametrize("forgetting", [1.0, 0.9])
@pytest.mark.parametrize("size", [0, 6])
@pytest.mark.parametrize(("growth", "weights", "noise"), COMBINATIONS)
def test_a_loaded_model_goes_on_bit_for_bit(growth, weights, noise, size, forgetting, tmp_path, rng):
    if growth == "frozen" and forgetting < 1:
        pytest.skip("has no meaning")
    model = SparseGPSarsa(
        KERNELS["nested"], 0.1, pseudo_inputs(rng, size), growth=growth, weights=weights, noise=noise,
        prior_mean=0.3, forgetting=forgetting,
    )  # fmt: skip
    live_on(model, rng)
    model.save(tmp_path / "model.safetensors")
    loaded = SparseGPSarsa.load(tmp_path / "model.safetensors")
    assert fingerprint(loaded) == fingerprint(model)
    assert loaded.kernel == model.kernel
    X = pseudo_inputs(rng, 7)
    seed = int(rng.integers(2**32))
    for both in (model, loaded):
        live_on(both, np.random.default_rng(seed))
    assert fingerprint(loaded) == fingerprint(model)
    for a, b in zip(model.predict(X, return_cov=True), loaded.predict(X, return_cov=True), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(model.sample(1, 3)[0](X), loaded.sample(1, 3)[0](X))


@pytest.mark.parametrize("noise", ["iid", "correlated"])
def test_the_exact_model_too(noise, tmp_path, rng):
    path = tmp_path / "exact.safetensors"
    empty = GPSarsa(KERNELS["sum"], 0.1, noise=noise)
    empty.save(path)
    assert GPSarsa.load(path).n_transitions == 0
    model = live_on(empty, rng)
    model.save(path)
    loaded = GPSarsa.load(str(path))
    seed = int(rng.integers(2**32))
    for both in (model, loaded):
        live_on(both, np.random.default_rng(seed))
    assert fingerprint(loaded) == fingerprint(model)


def test_a_users_kernel_is_asked_for_again(tmp_path, rng):
    path = tmp_path / "own.safetensors"
    model = SparseGPSarsa(Cosine(), 0.1, rng.standard_normal((4, 3))).update(transitions(rng))
    model.save(path)
    with pytest.raises(CheckpointError, match="kernel of your own: pass it as kernel="):
        SparseGPSarsa.load(path)
    X = rng.standard_normal((3, 3))
    np.testing.assert_array_equal(SparseGPSarsa.load(path, kernel=Cosine()).predict(X), model.predict(X))
    SparseGPSarsa(KERNELS["rbf"], 0.1, pseudo_inputs(rng, 3)).save(path)
    with pytest.raises(CheckpointError, match="holds its own kernel"):
        SparseGPSarsa.load(path, kernel=Cosine())


def test_the_file_is_plain_safetensors_and_says_what_it_is(tmp_path, rng):
    path = tmp_path / "model.safetensors"
    SparseGPSarsa(KERNELS["rbf"], 0.1, pseudo_inputs(rng, 3)).save(path)
    arrays = safetensors.numpy.load_file(path)
    assert arrays["Z"].shape == (3, 3)
    header = checkpoint.read_header(path.read_bytes())
    assert header["format"] == "gpsarsa"
    assert header["version"] == "1"
    assert json.loads(header["content"])["estimator"] == "SparseGPSarsa"


# -- damage ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    rng = np.random.default_rng(3)
    path = tmp_path_factory.mktemp("saved") / "model.safetensors"
    SparseGPSarsa(KERNELS["action"], 0.1, pseudo_inputs(rng, 4)).update(transitions(rng)).save(path)
    return path


def test_every_truncation_is_found(saved):
    data, cut = saved.read_bytes(), saved.with_name("cut.safetensors")
    for length in [*range(64), *range(64, len(data), 37)]:
        cut.write_bytes(data[:length])
        with pytest.raises(CheckpointError, match=r"cut\.safetensors"):
            SparseGPSarsa.load(cut)


def test_every_flipped_bit_of_the_arrays_is_found(saved):
    data, changed = saved.read_bytes(), saved.with_name("flipped.safetensors")
    start = 8 + int.from_bytes(data[:8], "little")
    for place in range(start, len(data), 61):
        flipped = bytearray(data)
        flipped[place] ^= 1 << (place % 8)
        changed.write_bytes(flipped)
        with pytest.raises(CheckpointError, match="checksum"):
            SparseGPSarsa.load(changed)


@given(st.data())
def test_no_damage_gives_anything_but_a_clear_error(saved, data):
    content = bytearray(saved.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = saved.with_name("fuzzed.safetensors")
    path.write_bytes(content)
    if bytes(content) == saved.read_bytes():
        return
    try:
        SparseGPSarsa.load(path)
    except CheckpointError as error:
        assert "fuzzed.safetensors" in str(error)  # noqa: PT017
    else:  # white space between the header and the arrays may change unnoticed
        assert json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])


@given(st.binary(max_size=200))
def test_a_foreign_file_is_refused(saved, content):
    path = saved.with_name("foreign")
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="foreign"):
        SparseGPSarsa.load(path)


def rewritten(saved, change):
    """The same model with its document or arrays changed and a checksum that fits."""
    arrays, content = checkpoint.read(saved)
    change(arrays, content)
    path = saved.with_name("rewritten.safetensors")
    checkpoint.write(path, arrays, content)
    return path


@pytest.mark.parametrize(
    "change",
    [
        lambda a, c: a.pop("W"),
        lambda a, c: a.update(W=a["W"][:2]),
        lambda a, c: a.update(m=a["m"][:2]),
        lambda a, c: a.update(R=a["R"] * np.nan),
        lambda a, c: a.update(Z=a["Z"].astype(np.float32)[:3]),
        lambda a, c: a.update(Z=a["Z"][0]),
        lambda a, c: a.update(history=a["history"] + 2),
        lambda a, c: a.update(history=a["history"][:, 1:]),
        lambda a, c: c.pop("options"),
        lambda a, c: c.update(noise_variance=-1),
        lambda a, c: c.update(noise_variance="1"),
        lambda a, c: a.update(newest=a["newest"] + 1),
        lambda a, c: c["options"].update(growth="magic"),
        lambda a, c: c["options"].update(surprise=1),
        lambda a, c: c["kernel"].update(kind="os.system"),
        lambda a, c: c.update(kernel=[]),
    ],
)
def test_a_document_that_makes_no_sense_is_refused(saved, change):
    with pytest.raises(CheckpointError, match="rewritten"):
        SparseGPSarsa.load(rewritten(saved, change))


def test_the_wrong_kind_and_the_wrong_version(saved, tmp_path, monkeypatch):
    with pytest.raises(CheckpointError, match="holds a SparseGPSarsa, not a GPSarsa"):
        GPSarsa.load(saved)
    with pytest.raises(FileNotFoundError):
        SparseGPSarsa.load(tmp_path / "nowhere")
    foreign = tmp_path / "foreign.safetensors"
    safetensors.numpy.save_file({"a": np.zeros(3)}, foreign)
    with pytest.raises(CheckpointError, match="was not written by gpsarsa"):
        SparseGPSarsa.load(foreign)
    monkeypatch.setattr(checkpoint, "VERSION", 2)
    with pytest.raises(CheckpointError, match="has format version 1; this release reads version 2"):
        SparseGPSarsa.load(saved)
    assert issubclass(CheckpointError, ValueError)


# -- writing --------------------------------------------------------------------------------------


def test_a_write_that_fails_leaves_the_old_file(tmp_path, rng, monkeypatch):
    path = tmp_path / "model.safetensors"
    model = SparseGPSarsa(KERNELS["rbf"], 0.1, pseudo_inputs(rng, 3))
    model.save(path)
    before = path.read_bytes()

    def full_disk(*_):
        raise OSError(28, "No space left on device")

    for name in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, full_disk)
            with pytest.raises(OSError, match="No space left"):
                model.update(transitions(rng)).save(path)
        assert path.read_bytes() == before
        assert os.listdir(tmp_path) == ["model.safetensors"]
    with pytest.raises(FileNotFoundError):
        model.save(tmp_path / "no" / "folder.safetensors")


def test_a_saved_file_has_ordinary_permissions(tmp_path, rng):
    path = tmp_path / "model.safetensors"
    SparseGPSarsa(KERNELS["rbf"], 0.1, pseudo_inputs(rng, 3)).save(path)
    (tmp_path / "plain").touch()
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)


SAME_BITS = """
import hashlib, sys, numpy as np
from gpsarsa import SparseGPSarsa, Transitions, kernels
rng = np.random.default_rng(0)
X, r = rng.standard_normal((400, 3)), rng.standard_normal(400)
k = kernels.Matern52([1.0, 1.0], columns=[0, 1]) * kernels.RBF(1.0, columns=[2])
if len(sys.argv) > 1:
    t = Transitions(X[:20], r[:20], X[1:21], np.full(20, 0.9))
    SparseGPSarsa(k, 0.1, X[:5]).optimize(t, pseudo_inputs=False, max_iterations=1)
model = SparseGPSarsa(k, 0.1, X[:50], growth="streaming")
for i in range(399):
    model.observe(X[i], r[i], X[i + 1], 0.97, True)
print(hashlib.sha256(model._belief.m.tobytes()).hexdigest())
"""


def test_results_do_not_depend_on_what_a_process_did_before():
    digests = {
        subprocess.run([sys.executable, "-c", SAME_BITS, *more], capture_output=True, check=True).stdout
        for more in ((), ("optimize first",))
    }
    assert len(digests) == 1


def test_byte_orders_and_single_numbers_come_back(tmp_path):
    path = tmp_path / "file"
    checkpoint.write(path, {"big": np.arange(3, dtype=">f8"), "single": np.array(2.5)}, {})
    arrays, _ = checkpoint.read(path)
    np.testing.assert_array_equal(arrays["big"], [0.0, 1.0, 2.0])
    assert arrays["single"].shape == ()
    assert arrays["single"] == 2.5
