# Every target sets up what it needs: a virtual environment in .venv, versions as in constraints.txt.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
SOURCES := $(wildcard src/gpsarsa/*.py src/gpsarsa/*/*.py)
FRESH := .venv/.fresh
PEERS := .peers/.ready
BODIES := .venv/.bodies .peers/.bodies

.PHONY: setup demo test coverage lint format docs pictures figure tables release mutate fuzz audit bench bench-evidence bench-agent \
	bench-control bench-offline bench-ablation check-sb3 study clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

# Numba's disk cache does not see that a compiled function in another file has changed.
$(FRESH): $(READY) $(SOURCES)
	find src -name '*.nb[ic]' -delete
	touch $@

demo: $(FRESH)
	$(BIN)/python examples/demo.py

test: $(FRESH)
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

# Which lines of src the tests run; compiled functions, which Numba runs unseen, do not count.
coverage: $(FRESH)
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal --cov --cov-report=term-missing:skip-covered

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The documentation as a site that needs no network; warnings are errors.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "look at site/index.html"

# The pictures of docs/tour.md.
pictures: $(FRESH)
	$(BIN)/python -m studies.tour

figure: $(FRESH)
	$(BIN)/python -m studies.figure

bench: $(FRESH)
	$(BIN)/python -m benchmarks

study: $(FRESH)
	$(BIN)/python -m studies

# Wrong arguments, damaged files, nonsense on the command line, kills: a quarter of an hour of them at random.
.fuzz/.ready: pyproject.toml constraints.txt
	test -x .fuzz/bin/python || $(PYTHON) -m venv .fuzz
	.fuzz/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]' atheris
	touch $@

fuzz: export OPENBLAS_NUM_THREADS = 1
fuzz: $(FRESH) .fuzz/.ready
	GPSARSA_FUZZ=400 $(BIN)/python -m pytest -q -n 2 --dist worksteal tests/test_fuzz.py tests/test_kills.py
	$(BIN)/python -m fuzz --seconds 20
	for target in checkpoint agent run table command; do \
		.fuzz/bin/python -m fuzz.guided $$target --seconds 60 || exit 1; done

# What is installed: versions as in constraints.txt, nothing missing, licences.
audit: $(READY)
	$(BIN)/python tools/audit.py

# Other libraries to compare with, in an environment of their own. (torch may bring CUDA, some gigabytes.)
$(PEERS):
	test -x .peers/bin/python || $(PYTHON) -m venv .peers
	.peers/bin/python -m pip install --quiet --disable-pip-version-check \
		torch==2.13.0 gpytorch==1.15.2 GPy==1.15.0 stable-baselines3==2.9.2
	touch $@

bench-evidence: $(FRESH) $(PEERS)
	$(BIN)/python -m benchmarks.evidence .peers/bin/python

# What a step of the agent costs, beside Stable-Baselines3's PPO.
bench-agent: $(FRESH) $(PEERS)
	$(BIN)/python -m benchmarks.agent .peers/bin/python

# Box2D and MuJoCo, which only bench-control needs. Where Box2D must be built, it needs SWIG there before.
.venv/.bodies: LIMITS := -c constraints.txt
.venv/.bodies: $(READY)
.peers/.bodies: $(PEERS)
$(BODIES):
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check $(LIMITS) swig
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check $(LIMITS) \
		'gymnasium[box2d,mujoco]==1.4.0' mujoco==4.0.0
	touch $@

# Steps until tasks are solved, ours and peers', for docs/results.md. Hours; goes on where it was interrupted.
bench-control: $(FRESH) $(BODIES)
	$(BIN)/python -m benchmarks.control .peers/bin/python

# Passes over tables of a million rows and more, on threads and on Ray.
bench-offline: $(FRESH)
	$(BIN)/python -m benchmarks.offline

# The agent without one of its parts, for docs/control.md.
bench-ablation: $(FRESH) .venv/.bodies
	$(BIN)/python -m benchmarks.control_ablation

# The README's tables, measured here: about an hour, and on where it was interrupted.
tables: $(FRESH) $(PEERS)
	$(BIN)/python -m benchmarks.tables .peers/bin/python

# Stable-Baselines3's evaluate_policy takes our agents as they are.
check-sb3: $(PEERS)
	.peers/bin/python -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps .
	.peers/bin/python -m pip install --quiet --disable-pip-version-check .
	cd .peers && bin/python ../benchmarks/sb3.py evaluate

# What strangers will install: sdist and wheel, alone, with each extra, and with the lowest versions.
release: $(READY)
	$(BIN)/python tools/release.py

# Whether the tests notice a changed sign or index in belief.py and basis.py. Ten minutes.
mutate: $(READY)
	$(BIN)/python tools/mutate.py

clean:
	rm -rf .venv .peers .fuzz runs/demo site build dist src/*.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -exec rm -rf {} +
