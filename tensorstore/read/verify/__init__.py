"""Verification: reads every byte of a run, and says what is damaged, unfinished or not needed."""

from .report import Damage, Unfinished, Unnamed, Verification
from .run import verify_run

__all__ = ["Damage", "Unfinished", "Unnamed", "Verification", "verify_run"]
