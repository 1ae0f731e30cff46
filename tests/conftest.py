import numpy as np
import pytest
from hypothesis import settings

from gpsarsa import cli

settings.register_profile("suite", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("suite")


@pytest.fixture
def rng():
    return np.random.default_rng(20181029)


@pytest.fixture
def run(capsys):
    """Call a command; its exit code and what it printed."""

    def call(*arguments):
        capsys.readouterr()
        code = cli.main([str(argument) for argument in arguments])
        return code, *capsys.readouterr()

    return call


@pytest.fixture
def refused(run):
    """Call a command that fails as expected; its message."""

    def call(*arguments):
        code, out, messages = run(*arguments)
        assert code == 2
        assert out == ""
        *_, last = messages.rstrip("\n").split("\n")
        assert last.startswith("gpsarsa: ")
        assert "Traceback" not in messages
        return last

    return call
