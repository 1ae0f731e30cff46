import numpy as np
import pytest
from hypothesis import settings

from gpsarsa import cli
from gpsarsa.control import imagination, rules

settings.register_profile("suite", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("suite")


# About what an agent does, not about how well: there it dreams as ever, but of less.
SHORT_DREAMS = {
    "test_agent", "test_callbacks", "test_cli", "test_cli_evaluate", "test_datasets", "test_disk",
    "test_environments", "test_evaluation", "test_policies",
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def short_dreams(request):
    with pytest.MonkeyPatch.context() as patch:
        if request.module.__name__ in SHORT_DREAMS:
            for name, value in {"ROWS": 300, "REAL": 150, "DREAMS": 2, "STARTS": 10, "DREAMT": 50}.items():
                patch.setattr(imagination, name, value)
            patch.setattr(rules, "GENERATIONS", 5)
        yield


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
