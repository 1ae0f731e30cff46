"""A peer's sparse evidence, run by `benchmarks.evidence` in the peers' own environment.

`python peers.py NAME problem.npz THREADS` answers each line with a number k on standard input by one
line of JSON: how long one evaluation of the objective and its full gradient took with all parameters
scaled by 1 + k/1000, and what came out, as the objective (a log density of all rewards) and its
gradient by Z, lengthscales, variance and noise variance, in that order. This file does not import
the package, which need not be there.
"""

from __future__ import annotations

import json
import sys
import time
from importlib.metadata import version

import numpy as np


class GPyTorch:
    """SGPR as in GPyTorch's documentation: Titsias' bound, by Woodbury's formula and autograd."""

    distribution = "gpytorch"

    def __init__(self, X, y, Z, threads):
        import gpytorch
        import torch
        from gpytorch.kernels import InducingPointKernel, RBFKernel, ScaleKernel

        torch.set_num_threads(threads)
        self.torch, self.X, self.y = torch, torch.from_numpy(X), torch.from_numpy(y)
        self.likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
        self.scale = ScaleKernel(RBFKernel(ard_num_dims=X.shape[1])).double()
        self.inducing = InducingPointKernel(self.scale, torch.from_numpy(Z), self.likelihood)

        class Model(gpytorch.models.ExactGP):
            def __init__(self, X, y, likelihood, kernel):
                super().__init__(X, y, likelihood)
                self.mean_module = gpytorch.means.ZeroMean()
                self.covar_module = kernel

            def forward(self, x):
                return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

        self.model = Model(self.X, self.y, self.likelihood, self.inducing).train()
        self.objective = gpytorch.mlls.ExactMarginalLogLikelihood(self.likelihood, self.model)

    def set(self, Z, lengthscales, variance, noise):
        self.inducing.inducing_points.data = self.torch.from_numpy(Z)
        self.scale.base_kernel.lengthscale = self.torch.from_numpy(lengthscales)
        self.scale.outputscale = self.torch.tensor(variance)
        self.likelihood.noise = self.torch.tensor(noise)

    def evaluate(self):
        self.model.zero_grad()
        self.value = self.objective(self.model(self.X), self.y)
        self.value.backward()

    def result(self):
        n, kernel, noise = len(self.y), self.scale.base_kernel, self.likelihood.noise_covar
        pairs = [
            (kernel.lengthscale, kernel.raw_lengthscale),
            (self.scale.outputscale, self.scale.raw_outputscale),
            (noise.noise, noise.raw_noise),
        ]
        slopes = [raw.grad / self.torch.autograd.grad(value.sum(), raw)[0] for value, raw in pairs]
        parts = [self.inducing.inducing_points.grad, *slopes]
        return n * self.value.item(), n * np.concatenate([part.numpy().ravel() for part in parts])


class GPy:
    """GPy's SparseGP with gradients written by hand; its jitter set to zero, so that values can agree."""

    distribution = "GPy"

    def __init__(self, X, y, Z, inference):
        import GPy

        method = getattr(GPy.inference.latent_function_inference, inference)()
        method.const_jitter = 0.0
        self.model = GPy.core.SparseGP(
            X,
            y[:, None],
            Z,
            GPy.kern.RBF(X.shape[1], ARD=True),
            GPy.likelihoods.Gaussian(),
            inference_method=method,
        )

    def set(self, Z, lengthscales, variance, noise):
        self.parameters = np.concatenate([Z.ravel(), [variance], lengthscales, [noise]])

    def evaluate(self):
        self.model[:] = self.parameters  # triggers the evaluation

    def result(self):
        kernel, noise = self.model.kern, self.model.likelihood.variance
        parts = [self.model.Z, kernel.lengthscale, kernel.variance, noise]
        gradient = np.concatenate([np.ravel(part.gradient) for part in parts])
        return float(np.squeeze(self.model.log_likelihood())), gradient


PEERS = {
    "GPyTorch SGPR": GPyTorch,
    "GPy VarDTC": lambda X, y, Z, threads: GPy(X, y, Z, "VarDTC"),  # threads as in the environment
    "GPy FITC": lambda X, y, Z, threads: GPy(X, y, Z, "FITC"),
}


def main(name: str, problem: str, threads: str) -> None:
    answers, sys.stdout = sys.stdout, sys.stderr  # what libraries print must not come between
    arrays = np.load(problem)
    peer = PEERS[name](arrays["X"], arrays["y"], arrays["Z"], int(threads))
    print(json.dumps(f"{name} {version(peer.distribution)}"), file=answers, flush=True)
    for line in sys.stdin:
        scale = 1 + int(line) / 1000
        peer.set(*(scale * arrays[part] for part in ("Z", "lengthscales", "variance", "noise")))
        begun = time.perf_counter()
        peer.evaluate()
        seconds = time.perf_counter() - begun
        value, gradient = peer.result()
        print(json.dumps([seconds, value, gradient.tolist()]), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
