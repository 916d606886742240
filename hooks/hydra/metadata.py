"""The metadata of a Hydra job."""

from __future__ import annotations

from typing import Any

from tensortrial.errors import ConfigurationError, importing

with importing("hydra-core", "hydra", "the metadata of a Hydra job"):
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import DictConfig, OmegaConf
    from omegaconf.errors import OmegaConfBaseException


def job_metadata(config: Any) -> dict[str, Any]:
    """Return the composed configuration of a job, with Hydra's own data about the job under `hydra`.

    Args:
        config: The configuration that `@hydra.main` passes.

    Returns:
        The configuration, with interpolations resolved, as JSON values; a value that is missing stays `???`. Inside of
        a job, `hydra` has its name, its overrides, its number in a sweep and its output folder.

    Raises:
        ConfigurationError: `config` is not a configuration with names, or an interpolation cannot be resolved.
    """
    if not isinstance(config, DictConfig):
        raise ConfigurationError(f"config must be the DictConfig that @hydra.main passes, got {type(config).__name__}")
    try:
        found: dict[str, Any] = OmegaConf.to_container(config, resolve=True)
    except OmegaConfBaseException as exc:
        raise ConfigurationError(f"the configuration cannot be resolved: {exc}") from exc
    if HydraConfig.initialized():
        hydra = HydraConfig.get()
        job = {"job": hydra.job.name, "overrides": list(hydra.overrides.task), "output_dir": hydra.runtime.output_dir}
        number = OmegaConf.select(hydra, "job.num", throw_on_missing=False)
        found["hydra"] = job if number is None else {**job, "number": number}
    return found
