"""The run of a program that uses no framework: numbers and arrays, saved by calls."""

from .run import Run

__all__ = ["Run"]
