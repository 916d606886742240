"""Verification: reads every byte of a run, and reports its damaged, unfinished and unneeded parts."""

from .report import Damage, Unfinished, Unnamed, Verification
from .run import verify_run

__all__ = ["Damage", "Unfinished", "Unnamed", "Verification", "verify_run"]
