"""Doubles and tools for proving that calls are neither repeated nor lost."""
