"""The documentation is run."""
